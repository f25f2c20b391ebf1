//! A cluster: who has the slots, and which of them do the work.

use std::collections::BTreeMap;

use tollgate_redis::Partition;

use crate::doctor::{
    finding::Finding,
    server::{Server, numbers, pairs, words},
};

const CHECK: &str = "cluster";
const SLOTS: u64 = 16_384;

/// A primary with its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Its host and port.
    pub(crate) primary: String,
    pub(crate) slots: Vec<(u16, u16)>,
    pub(crate) replicas: usize,
}

/// The shards, as one of the servers knows them.
pub(crate) async fn shards(server: &mut Server) -> Result<Vec<Shard>, Finding> {
    type Node = Vec<redis::Value>;
    let ranges: Vec<Vec<redis::Value>> = match server.ask(&["CLUSTER", "SLOTS"]).await {
        Ok(ranges) => ranges,
        Err(wrong) => {
            let said = words(&wrong);
            let remedy = match said.contains("cluster support disabled") {
                true => "it is a single server: name it with redis://",
                false => "+cluster|slots for the user; without it the store finds no server either",
            };
            let says = format!("who has which slot may not be read: {said}");
            return Err(Finding::error(CHECK, says, remedy));
        }
    };
    let mut shards: BTreeMap<String, Shard> = BTreeMap::new();
    for range in &ranges {
        let number =
            |index: usize| -> Option<u16> { redis::from_redis_value_ref(range.get(index)?).ok() };
        let node = |value: &redis::Value| -> Option<String> {
            let node: Node = redis::from_redis_value_ref(value).ok()?;
            let host: String = redis::from_redis_value_ref(node.first()?).ok()?;
            let port: u16 = redis::from_redis_value_ref(node.get(1)?).ok()?;
            // A server that does not know its own address leaves it out.
            let host = match host.is_empty() {
                true => server.name.rsplit_once(':')?.0.to_owned(),
                false => host,
            };
            Some(match host.contains(':') && !host.starts_with('[') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            })
        };
        let (Some(first), Some(last)) = (number(0), number(1)) else {
            continue;
        };
        let Some(primary) = range.get(2).and_then(node) else {
            continue;
        };
        let shard = shards.entry(primary.clone()).or_insert_with(|| Shard {
            primary,
            slots: Vec::new(),
            replicas: range.len().saturating_sub(3),
        });
        shard.slots.push((first, last));
    }
    Ok(shards.into_values().collect())
}

/// What the cluster as a whole says.
pub(crate) async fn state(server: &mut Server, shards: &[Shard]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let served: u64 = shards
        .iter()
        .flat_map(|shard| &shard.slots)
        .map(|(first, last)| u64::from(last - first) + 1)
        .sum();
    let info: Option<String> = server.ask(&["CLUSTER", "INFO"]).await.ok();
    let info = info.as_deref().map(pairs).unwrap_or_default();
    let is_ok = info.get("cluster_state").is_none_or(|state| state == "ok");
    let known = numbers(&info, "cluster_known_nodes");
    let says = format!(
        "{} shards, {known} servers, {served} of {SLOTS} slots served",
        shards.len()
    );
    findings.push(match (is_ok, served) {
        (true, SLOTS) => Finding::fine(CHECK, says),
        _ => Finding::error(
            CHECK,
            format!("{says}: requests whose keys lie elsewhere are not decided"),
            "redis-cli --cluster check says which are missing, redis-cli --cluster fix assigns them",
        ),
    });
    let alone = shards.iter().filter(|shard| shard.replicas == 0).count();
    if alone > 0 {
        findings.push(Finding::note(
            CHECK,
            format!("{alone} of {} shards have no replica", shards.len()),
            "while such a shard is gone, its clients are decided by the rules' on_store_error; add a replica",
        ));
    }
    if server
        .setting("cluster-require-full-coverage")
        .await
        .as_deref()
        == Some("yes")
    {
        findings.push(Finding::warning(
            CHECK,
            "cluster-require-full-coverage is yes: one shard that is gone stops all others",
            "CONFIG SET cluster-require-full-coverage no, on every server",
        ));
    }
    findings
}

/// What the partition makes of the shards.
pub(crate) async fn partition(
    server: &mut Server,
    shards: &[Shard],
    namespace: &str,
    partition: Option<&Partition>,
) -> Option<Finding> {
    const CHECK: &str = "partition";
    let slot: u16 = server
        .ask(&["CLUSTER", "KEYSLOT", &format!("{{{namespace}}}:doctor")])
        .await
        .ok()?;
    let has = |shard: &&Shard| {
        shard
            .slots
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&slot))
    };
    let owner = shards
        .iter()
        .find(has)
        .map_or("no server", |shard| &*shard.primary);
    let says = format!(
        "with Partition::One all limits of {namespace} lie in slot {slot}, on {owner}: one of {} shards does all the work",
        shards.len()
    );
    let remedy = "with Partition::Key all shards work, and a request takes one step for each key that its rules count by; with \
                  Partition::ByRule, one for each tenant; or give services namespaces of their own, which lie on different shards";
    match partition {
        Some(Partition::One) if shards.len() > 1 => Some(Finding::warning(CHECK, says, remedy)),
        None if shards.len() > 1 => Some(Finding::note(
            CHECK,
            says,
            format!("{remedy}. Say --partition to learn what holds for yours"),
        )),
        _ => Some(Finding::fine(
            CHECK,
            format!("{} shards share the work", shards.len()),
        )),
    }
}
