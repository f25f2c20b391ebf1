//! All checks of an address, server by server.

use std::time::Duration;

use redis::{Value, from_redis_value_ref};
use tollgate_redis::{Place, Secret};

use crate::{
    doctor::{
        access::access,
        finding::{
            Finding,
            Level::{Error, Fine, Note, Warning},
        },
        namespace::instances,
        pace::pace,
        server_info::ServerInfo,
        servers::{Server, Servers, name, words},
    },
    failure::Failure,
};

const SLOTS: u32 = 16_384;

/// What is known before anything is asked.
#[derive(Debug)]
pub(crate) struct Patient<'a> {
    pub(crate) servers: Servers,
    pub(crate) namespace: &'a str,
    pub(crate) secret: Option<Secret>,
    pub(crate) deadline: Duration,
    /// The longest window or refill of the rules.
    pub(crate) longest: Option<Duration>,
}

impl Patient<'_> {
    /// All findings.
    pub(crate) async fn examine(&self) -> Result<Vec<Finding>, Failure> {
        let parts = &self.servers.parts;
        if parts.is_cluster {
            return self.examine_cluster(&parts.places).await;
        }
        let (place, mut findings) = match (&parts.master, &*parts.places) {
            (Some(master), sentinels) => {
                let (place, finding) = self.ask_sentinels(sentinels, master).await?;
                (place, vec![finding])
            }
            (None, [place, ..]) => (place.clone(), Vec::new()),
            (None, []) => return Err(Failure::usage("--redis: the address names no server")),
        };
        let mut server = self.servers.connect(&place, false).await?;
        findings.extend(self.examine_server(&mut server).await);
        Ok(findings)
    }

    async fn examine_cluster(&self, seeds: &[Place]) -> Result<Vec<Finding>, Failure> {
        let (mut findings, mut found) = (Vec::<Finding>::new(), None);
        for seed in seeds {
            match self.servers.connect(seed, false).await {
                Ok(server) => {
                    found = Some(server);
                    break;
                }
                Err(failure) => findings.push(Warning.of(
                    "connection",
                    failure.message,
                    "start it, or take it out of the address",
                )),
            }
        }
        let Some(mut seed) = found else {
            let whys: Vec<_> = findings.into_iter().map(|finding| finding.says).collect();
            return Err(Failure::failed(whys.join("\n")));
        };
        let (primaries, state) = primaries(&mut seed).await;
        findings.push(state);
        let covers = seed.setting("cluster-require-full-coverage").await;
        if covers.as_deref() == Some("yes") && !primaries.is_empty() {
            findings.push(Warning.of(
                "cluster",
                "cluster-require-full-coverage is yes: one shard that is gone stops all others",
                "CONFIG SET cluster-require-full-coverage no, on every server",
            ));
        }
        for primary in primaries {
            let found = match self.servers.connect(&primary, false).await {
                Ok(mut server) => self.examine_server(&mut server).await,
                Err(failure) => vec![Error.of(
                    "connection",
                    failure.message,
                    "if the service reaches servers by other names than they announce, it needs an address_map",
                )],
            };
            let server = name(&primary);
            findings.extend(found.into_iter().map(|finding| Finding {
                server: server.clone(),
                ..finding
            }));
        }
        Ok(findings)
    }

    async fn examine_server(&self, server: &mut Server) -> Vec<Finding> {
        let parts = &self.servers.parts;
        let mut findings = match server.ask::<String>(&["INFO"]).await {
            Ok(text) => {
                let info = ServerInfo {
                    text,
                    min_replicas_to_write: server.setting("min-replicas-to-write").await,
                    save: server.setting("save").await,
                };
                info.findings(parts.is_cluster, self.longest)
            }
            Err(wrong) => vec![Note.of(
                "info",
                format!(
                    "role, memory, eviction and disks may not be read: {}",
                    words(&wrong)
                ),
                "that is as it should be for the user of a service; run this as an administrator too, or add +info +config|get",
            )],
        };
        findings.extend(
            access(
                server,
                self.namespace,
                parts.is_cluster,
                parts.login[0].as_deref(),
            )
            .await,
        );
        findings.extend(pace(server, self.namespace, self.deadline).await);
        findings.extend(instances(server, self.namespace, self.secret.as_ref()).await);
        findings
    }

    /// The master that most sentinels name, and whether all do.
    async fn ask_sentinels(
        &self,
        sentinels: &[Place],
        master: &str,
    ) -> Result<(Place, Finding), Failure> {
        let (mut said, mut silent) = (Vec::new(), String::new());
        for place in sentinels {
            let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master];
            let answer = match self.servers.connect(place, true).await {
                Ok(mut server) => server.ask(&command).await.map_err(|wrong| words(&wrong)),
                Err(failure) => Err(failure.message),
            };
            match answer {
                Ok(Some((host, port))) => said.push(Place::Tcp(host, port)),
                Ok(None) => silent += &format!("; {} knows no master {master:?}", name(place)),
                Err(why) => silent += &format!("; {} does not say it: {why}", name(place)),
            }
        }
        let count = |place: &&Place| said.iter().filter(|other| other == place).count();
        let Some(place) = said.iter().max_by_key(count) else {
            return Err(Failure::failed(format!(
                "no sentinel says who the master {master:?} is{silent}"
            )));
        };
        let (agreeing, all) = (count(&place), sentinels.len());
        let says = format!("{agreeing} of {all} say that {} is the master", name(place));
        let level = match agreeing * 2 > said.len() {
            _ if agreeing == all => return Ok((place.clone(), Fine.of("sentinels", says, ""))),
            // The store believes them while the others do not answer.
            true => Warning,
            false => Error,
        };
        let finding = level.of(
            "sentinels",
            format!(
                "only {says}: the store connects only while those that answer agree, and one with an old master is not outvoted{silent}"
            ),
            "name all sentinels in the address, and start those that are down; a user needs +sentinel|get-master-addr-by-name",
        );
        Ok((place.clone(), finding))
    }
}

/// The primaries that have slots, as one server of the cluster knows them, and whether each slot has one.
async fn primaries(server: &mut Server) -> (Vec<Place>, Finding) {
    let ranges: Vec<Vec<Value>> = match server.ask(&["CLUSTER", "SLOTS"]).await {
        Ok(ranges) => ranges,
        Err(wrong) => {
            let said = words(&wrong);
            let remedy = match said.contains("cluster support disabled") {
                true => "it is a single server: name it with redis://",
                false => "+cluster|slots for the user; without it the store finds no server either",
            };
            let says = format!("who has which slot may not be read: {said}");
            return (Vec::new(), Error.of("cluster", says, remedy));
        }
    };
    let (mut primaries, mut served) = (Vec::new(), 0);
    for (slots, place) in ranges
        .iter()
        .filter_map(|range| range_of(range, &server.name))
    {
        served += slots;
        if !primaries.contains(&place) {
            primaries.push(place);
        }
    }
    let says = format!(
        "{} shards, {served} of {SLOTS} slots served",
        primaries.len()
    );
    let finding = match served {
        SLOTS => Fine.of("cluster", says, ""),
        _ => Error.of(
            "cluster",
            format!("{says}: requests whose keys lie elsewhere are not decided"),
            "redis-cli --cluster check says which are missing, redis-cli --cluster fix assigns them",
        ),
    };
    (primaries, finding)
}

/// How many slots a line of `CLUSTER SLOTS` has, and the place of their primary.
fn range_of(range: &[Value], asked: &str) -> Option<(u32, Place)> {
    let [first, last, primary, ..] = range else {
        return None;
    };
    let number = |value| from_redis_value_ref::<u32>(value).ok();
    let node: Vec<Value> = from_redis_value_ref(primary).ok()?;
    let mut host: String = from_redis_value_ref(node.first()?).ok()?;
    if host.is_empty() {
        // A server that does not know its own address leaves it out.
        let (own, _) = asked.rsplit_once(':')?;
        host = own.trim_matches(['[', ']']).to_owned();
    }
    let port = u16::try_from(number(node.get(1)?)?).ok()?;
    Some((number(last)? - number(first)? + 1, Place::Tcp(host, port)))
}
