//! All checks of an address, server by server.

use std::time::Duration;

use redis::{Value, from_redis_value_ref};
use tollgate_redis::{Place, Secret};

use crate::{
    doctor::{
        access::access,
        clock::clock,
        finding::{
            Finding,
            Level::{Error, Fine, Note, Warning},
        },
        namespace::instances,
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
    /// The longest window or refill of the rules.
    pub(crate) longest: Option<Duration>,
}

impl Patient<'_> {
    /// All findings.
    pub(crate) async fn examine(&self) -> Result<Vec<Finding>, Failure> {
        if self.servers.parts.is_cluster {
            return self.examine_cluster().await;
        }
        let mut server = self.servers.connect(None).await?;
        Ok(self.examine_server(&mut server).await)
    }

    async fn examine_cluster(&self) -> Result<Vec<Finding>, Failure> {
        let (mut silent, mut found) = (Vec::new(), None);
        for seed in &self.servers.parts.places {
            match self.servers.connect(Some(seed)).await {
                Ok(server) => {
                    found = Some(server);
                    break;
                }
                Err(failure) => silent.push(failure.message),
            }
        }
        let mut seed = found.ok_or_else(|| Failure::failed(silent.join("\n")))?;
        let (primaries, state) = primaries(&mut seed).await;
        let mut findings = vec![state];
        let remedy = "start it, or take it out of the address";
        findings.extend((silent.into_iter()).map(|says| Warning.of("connection", says, remedy)));
        let covers = seed.setting("cluster-require-full-coverage").await;
        if covers.as_deref() == Some("yes") && !primaries.is_empty() {
            findings.push(Warning.of(
                "cluster",
                "cluster-require-full-coverage is yes: one shard that is gone stops all others",
                "CONFIG SET cluster-require-full-coverage no, on every server",
            ));
        }
        for primary in primaries {
            let found = match self.servers.connect(Some(&primary)).await {
                Ok(mut server) => self.examine_server(&mut server).await,
                Err(failure) => vec![Error.of(
                    "connection",
                    failure.message,
                    "if the service reaches servers by other names than they announce, it needs an address_map",
                )],
            };
            findings.extend(found.into_iter().map(|finding| Finding {
                server: name(&primary),
                ..finding
            }));
        }
        Ok(findings)
    }

    async fn examine_server(&self, server: &mut Server) -> Vec<Finding> {
        let (parts, namespace) = (&self.servers.parts, self.namespace);
        let mut findings = match server.ask::<String>(&["INFO"]).await {
            Ok(text) => {
                let info = ServerInfo {
                    text,
                    min_replicas_to_write: server.setting("min-replicas-to-write").await,
                    save: server.setting("save").await,
                };
                info.findings(parts.is_cluster, self.longest)
            }
            Err(wrong) => {
                let why = words(&wrong);
                vec![Note.of(
                    "info",
                    format!("role, memory, eviction and disks may not be read: {why}"),
                    "that is as it should be for the user of a service; run this as an administrator too, or add +info +config|get",
                )]
            }
        };
        let user = parts.login[0].as_deref();
        findings.extend(access(server, namespace, parts.is_cluster, user).await);
        findings.extend(clock(server, namespace).await);
        findings.extend(instances(server, namespace, self.secret.as_ref()).await);
        findings
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
    let ranges = ranges.iter();
    for (slots, place) in ranges.filter_map(|range| range_of(range, &server.name)) {
        served += slots;
        if !primaries.contains(&place) {
            primaries.push(place);
        }
    }
    let shards = primaries.len();
    let says = format!("{shards} shards, {served} of {SLOTS} slots served");
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
    let [first, last, Value::Array(primary), ..] = range else {
        return None;
    };
    let number = |value| from_redis_value_ref::<u32>(value).ok();
    let host: String = from_redis_value_ref(primary.first()?).ok()?;
    let host = match &*host {
        // A server that does not know its own address leaves it out.
        "" => asked
            .rsplit_once(':')?
            .0
            .trim_matches(['[', ']'])
            .to_owned(),
        _ => host,
    };
    let port = u16::try_from(number(primary.get(1)?)?).ok()?;
    Some((number(last)? - number(first)? + 1, Place::Tcp(host, port)))
}
