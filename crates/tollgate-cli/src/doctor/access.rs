//! What the user of the service may do: each command that the limiter needs is tried for real, on a key of its own.

use std::collections::BTreeSet;

use crate::doctor::{
    finding::{
        Finding,
        Level::{Error, Fine, Warning},
    },
    server::{Server, is_refusal, words},
};

/// What each decision calls, and what a heartbeat calls.
const TRY: &str = "\
local function try(...) local it = redis.pcall(...); if type(it) == 'table' and it.err then return it.err end return '' end
local decide = { try('TIME'), try('SET', KEYS[1], 'tollgate', 'PX', '1000'), try('GET', KEYS[1]),
  try('SETRANGE', KEYS[1], '0', 'T'), try('DEL', KEYS[1]) }
local heartbeat = { try('ZADD', KEYS[1], '1', 'tollgate'), try('ZREMRANGEBYSCORE', KEYS[1], '2', '3'), try('ZCARD', KEYS[1]),
  try('ZRANGE', KEYS[1], '0', '-1'), try('PEXPIRE', KEYS[1], '1000') }
redis.pcall('DEL', KEYS[1])
return { decide, heartbeat }";
const DECIDE: &[&str] = &["time", "set", "get", "setrange", "del"];
const HEARTBEAT: &[&str] = &["zadd", "zremrangebyscore", "zcard", "zrange", "pexpire"];

/// Why nothing can be written at present, though the user may: a sign, what it means, and what helps.
const REFUSED_WRITES: &[(&str, &str, &str)] = &[
    (
        "OOM",
        "the server is full, and refuses takes (OOM): each rule's on_store_error answers",
        "raise maxmemory, or cap new keys (`cap_new_keys`); `tollgate size` says how much your rules need",
    ),
    (
        "maxmemory",
        "the server is full, and refuses takes (OOM): each rule's on_store_error answers",
        "raise maxmemory, or cap new keys (`cap_new_keys`); `tollgate size` says how much your rules need",
    ),
    (
        "MISCONF",
        "the server cannot write its snapshot, and refuses takes (MISCONF)",
        "make room on its disk, or CONFIG SET stop-writes-on-bgsave-error no",
    ),
    (
        "NOREPLICAS",
        "too few replicas are connected, and takes are refused (NOREPLICAS)",
        "start the replicas, or lower min-replicas-to-write",
    ),
    (
        "CLUSTERDOWN",
        "the cluster is down (CLUSTERDOWN)",
        "see CLUSTER INFO; cluster-require-full-coverage no keeps the other shards at work",
    ),
    (
        "LOADING",
        "the server is loading its data (LOADING)",
        "wait, and run this again",
    ),
];

/// Tries what the store does, with both forms of names.
pub(crate) async fn access(
    server: &mut Server,
    namespace: &str,
    is_cluster: bool,
    user: Option<&str>,
) -> Vec<Finding> {
    let names = [
        format!("{{{namespace}}}:doctor"),
        format!("{namespace}:{{doctor}}:doctor"),
    ];
    let mut refused: Vec<(&str, String, &str)> = Vec::new();
    let sha = ["EVALSHA", &"0".repeat(40), "1", &names[0]];
    if let Err(wrong) = server.ask::<redis::Value>(&sha).await {
        refused.push(("evalsha", words(&wrong), &names[0]));
    }
    for name in &names {
        match server.eval::<[Vec<String>; 2]>(TRY, name).await {
            Ok([decide, heartbeat]) => {
                let commands = DECIDE.iter().chain(HEARTBEAT);
                let answers = decide.into_iter().chain(heartbeat);
                let tried = commands.zip(answers);
                refused.extend(tried.map(|(command, answer)| (*command, answer, &**name)));
            }
            Err(wrong) => refused.push(("eval", words(&wrong), name)),
        }
    }
    // Another server of the cluster has the key, or nothing is known of a script by this hash.
    refused.retain(|(_, answer, _)| {
        let begins = |sign: &&str| answer.trim_start_matches('-').starts_with(sign);
        !answer.is_empty() && !["MOVED", "ASK", "NOSCRIPT"].iter().any(begins)
    });
    let (mut decisions, mut heartbeats) = (Vec::new(), BTreeSet::new());
    for (command, answer, name) in refused.iter().filter(|(_, answer, _)| is_refusal(answer)) {
        if HEARTBEAT.contains(command) {
            heartbeats.insert(*command);
            continue;
        }
        // It may be the key that is refused, and not the command.
        let what = match answer.to_lowercase().contains("key") {
            true => format!("touch keys such as {name}"),
            false => (*command).to_owned(),
        };
        if !decisions.contains(&what) {
            decisions.push(what);
        }
    }
    let remedy = remedy(namespace, is_cluster, user);
    let mut findings = vec![match decisions.is_empty() {
        true => Fine.of("access", "the user may do what a decision takes", ""),
        false => Error.of(
            "access",
            format!(
                "the user may not {}: no request is decided here",
                decisions.join(", ")
            ),
            remedy.clone(),
        ),
    }];
    let mut others = refused.iter().filter(|(_, answer, _)| !is_refusal(answer));
    findings.extend(others.find_map(|(_, answer, _)| refused_write(answer)));
    if !heartbeats.is_empty() {
        findings.push(Warning.of(
            "heartbeats",
            format!(
                "the user may not {}: processes cannot see how many they are, nor compare their quotas and secrets",
                Vec::from_iter(heartbeats).join(", ")
            ),
            format!("{remedy}; or call without_heartbeats()"),
        ));
    }
    findings
}

fn refused_write(said: &str) -> Option<Finding> {
    // The finding about its role says all of it.
    if said.trim_start_matches('-').starts_with("READONLY") {
        return None;
    }
    let known = REFUSED_WRITES.iter().find(|(sign, ..)| said.contains(sign));
    Some(match known {
        Some((_, why, remedy)) => Error.of("write", *why, *remedy),
        None => Error.of(
            "write",
            format!("a write was refused: {said}"),
            "see the server's log",
        ),
    })
}

/// The rights that a service needs.
fn remedy(namespace: &str, is_cluster: bool, user: Option<&str>) -> String {
    let user = user.filter(|user| !user.is_empty()).unwrap_or("tollgate");
    let cluster = match is_cluster {
        true => " +cluster|slots +cluster|info +asking",
        false => "",
    };
    format!(
        "ACL SETUSER {user} on resetkeys ~{{{namespace}}}:* ~{namespace}:{{* resetchannels -@all +eval +evalsha +get +set +setrange \
         +del +time +zadd +zremrangebyscore +zcard +zrange +pexpire{cluster}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_for_refused_writes_has_its_own_remedy() {
        for (said, remedy) in [
            ("-OOM command not allowed", "raise maxmemory"),
            ("ERR used memory > 'maxmemory'", "raise maxmemory"),
            (
                "MISCONF Redis is configured to save snapshots",
                "stop-writes",
            ),
            ("NOREPLICAS Not enough good replicas", "start the replicas"),
            ("CLUSTERDOWN The cluster is down", "see CLUSTER INFO"),
            ("LOADING Redis is loading", "run this again"),
            ("ERR of another kind", "log"),
        ] {
            let finding = refused_write(said).expect("it is refused");
            assert!(finding.remedy.contains(remedy), "{said}: {finding:?}");
        }
        // What is found about its role says it.
        assert!(refused_write("READONLY You can't write against a replica").is_none());
    }

    #[test]
    fn a_remedy_names_the_user_and_what_a_cluster_takes_as_well() {
        let alone = remedy("shop", false, None);
        assert!(alone.starts_with("ACL SETUSER tollgate on "), "{alone}");
        assert_eq!(alone, remedy("shop", false, Some("")));
        let cluster = remedy("shop", true, Some("limits"));
        assert!(
            cluster.starts_with("ACL SETUSER limits on ") && cluster.ends_with("+asking"),
            "{cluster}"
        );
    }
}
