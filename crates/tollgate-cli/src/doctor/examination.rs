//! All checks of an address, server by server.

use std::time::Duration;

use tollgate_redis::Secret;

use crate::{
    doctor::{
        access::access,
        finding::{
            Finding,
            Level::{Error, Fine, Note, Warning},
        },
        namespace::instances,
        pace::pace,
        place::{Access, Place, Places},
        server::{Server, words},
        server_info::ServerInfo,
    },
    failure::Failure,
};

const SLOTS: u32 = 16_384;

/// What is known before anything is asked.
#[derive(Debug)]
pub(crate) struct Patient<'a> {
    pub(crate) places: Places,
    pub(crate) namespace: &'a str,
    pub(crate) secret: Option<Secret>,
    pub(crate) deadline: Duration,
    /// The longest window or refill of the rules.
    pub(crate) longest: Option<Duration>,
}

impl Patient<'_> {
    /// All findings.
    pub(crate) async fn examine(&self) -> Result<Vec<Finding>, Failure> {
        match &self.places {
            Places::Server(place) => {
                self.examine_server(&mut Server::connect(place).await?, false)
                    .await
            }
            Places::Sentinel {
                sentinels,
                master,
                access,
            } => {
                let (place, mut findings) = ask_sentinels(sentinels, master, access).await?;
                let mut server = Server::connect(&place).await?;
                findings.extend(self.examine_server(&mut server, false).await?);
                Ok(findings)
            }
            Places::Cluster { seeds, access } => self.examine_cluster(seeds, access).await,
        }
    }

    async fn examine_cluster(
        &self,
        seeds: &[Place],
        access: &Access,
    ) -> Result<Vec<Finding>, Failure> {
        let (mut seed, mut findings) = first_that_answers(seeds).await?;
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
            let found = match Server::connect(&Place::tcp(access, &primary)).await {
                Ok(mut server) => self.examine_server(&mut server, true).await?,
                Err(failure) => vec![Error.of(
                    "connection",
                    failure.message,
                    "if the service reaches servers by other names than they announce, it needs an address_map",
                )],
            };
            findings.extend(found.into_iter().map(|finding| Finding {
                server: primary.clone(),
                ..finding
            }));
        }
        Ok(findings)
    }

    async fn examine_server(
        &self,
        server: &mut Server,
        is_cluster: bool,
    ) -> Result<Vec<Finding>, Failure> {
        let mut findings = Vec::new();
        match server.info().await {
            Ok(info) => {
                if !is_cluster && info.get("redis_mode").is_some_and(|mode| mode == "cluster") {
                    findings.push(Error.of(
                        "cluster",
                        "this is one server of a cluster: keys on the other servers cannot be decided",
                        "give the address of the cluster, redis-cluster://one,two,three",
                    ));
                }
                let info = ServerInfo {
                    info,
                    min_replicas_to_write: server.setting("min-replicas-to-write").await,
                    save: server.setting("save").await,
                };
                findings.extend([info.role(), info.memory(), info.eviction()]);
                findings.push(info.persistence(self.longest));
            }
            Err(wrong) => findings.push(Note.of(
                "info",
                format!(
                    "role, memory, eviction and disks may not be read: {}",
                    words(&wrong)
                ),
                "that is as it should be for the user of a service; run this as an administrator too, or add +info +config|get",
            )),
        }
        let user = self.places.access().user();
        findings.extend(access(server, self.namespace, is_cluster, user).await);
        findings.extend(pace(server, self.namespace, self.deadline).await);
        findings.extend(instances(server, self.namespace, self.secret.as_ref()).await);
        Ok(findings)
    }
}

/// The primaries that have slots, as one server of the cluster knows them, and whether each slot has one.
async fn primaries(server: &mut Server) -> (Vec<String>, Finding) {
    let ranges: Vec<Vec<redis::Value>> = match server.ask(&["CLUSTER", "SLOTS"]).await {
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
    for range in &ranges {
        let Some((slots, place)) = range_of(range, &server.name) else {
            continue;
        };
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
fn range_of(range: &[redis::Value], asked: &str) -> Option<(u32, String)> {
    let [first, last, primary, ..] = range else {
        return None;
    };
    let number = |value| redis::from_redis_value_ref::<u32>(value).ok();
    let node: Vec<redis::Value> = redis::from_redis_value_ref(primary).ok()?;
    let host: String = redis::from_redis_value_ref(node.first()?).ok()?;
    // A server that does not know its own address leaves it out.
    let host = match host.is_empty() {
        true => asked.rsplit_once(':')?.0,
        false => &host,
    };
    let port = u16::try_from(number(node.get(1)?)?).ok()?;
    Some((number(last)? - number(first)? + 1, place_text(host, port)))
}

fn place_text(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The master, as the sentinels say, and what is wrong with them.
async fn ask_sentinels(
    sentinels: &[Place],
    master: &str,
    access: &Access,
) -> Result<(Place, Vec<Finding>), Failure> {
    const CHECK: &str = "sentinels";
    let (mut said, mut findings) = (Vec::new(), Vec::new());
    for place in sentinels {
        let answer = match Server::connect(place).await {
            Ok(mut server) => server
                .ask::<Option<(String, u16)>>(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master])
                .await
                .map_err(|wrong| words(&wrong)),
            Err(failure) => Err(failure.message),
        };
        match answer {
            Ok(Some((host, port))) => said.push(place_text(&host, port)),
            Ok(None) => findings.push(Warning.of(
                CHECK,
                format!("{} knows no master {master:?}", place.name()),
                "SENTINEL MASTERS there says which it knows",
            )),
            Err(why) => findings.push(Warning.of(
                CHECK,
                format!("{} does not say who the master is: {why}", place.name()),
                "start it, or leave it out of the address; its user needs +sentinel|get-master-addr-by-name",
            )),
        }
    }
    let count = |host: &String| said.iter().filter(|other| *other == host).count();
    let Some(host) = said.iter().max_by_key(|host| count(host)) else {
        let whys: Vec<_> = findings.iter().map(|finding| &*finding.says).collect();
        return Err(Failure::failed(format!(
            "no sentinel says who the master {master:?} is: {}",
            whys.join("; ")
        )));
    };
    let (agreeing, all) = (count(host), sentinels.len());
    let says = format!("{agreeing} of {all} say that {host} is the master");
    let level = match () {
        () if agreeing * 2 > all => Fine,
        // The store believes them while the others do not answer.
        () if agreeing * 2 > said.len() => Warning,
        () => Error,
    };
    findings.push(match level {
        Fine => Fine.of(CHECK, says, ""),
        _ => level.of(
            CHECK,
            format!(
                "only {says}: the store connects only while those that answer agree, and one with an old master is not outvoted"
            ),
            "name all sentinels in the address, and start those that are down",
        ),
    });
    Ok((Place::tcp(access, host), findings))
}

async fn first_that_answers(seeds: &[Place]) -> Result<(Server, Vec<Finding>), Failure> {
    const REMEDY: &str = "start it, or take it out of the address";
    let mut findings: Vec<Finding> = Vec::new();
    for seed in seeds {
        match Server::connect(seed).await {
            Ok(server) => return Ok((server, findings)),
            Err(failure) => findings.push(Warning.of("connection", failure.message, REMEDY)),
        }
    }
    let whys: Vec<_> = findings.iter().map(|finding| &*finding.says).collect();
    Err(Failure::failed(whys.join("\n")))
}
