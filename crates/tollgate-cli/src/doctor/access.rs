//! What the user of the service may do: each command that the limiter needs is tried for real, on a key of its own.

use std::collections::HashSet;

use redis::RedisError;

use crate::doctor::{
    finding::Finding,
    server::{Server, is_refusal, words},
};

const CHECK: &str = "access";
const WRITE: &str = "write";

/// What each decision calls.
const DECIDE: &str = "\
local function try(...) local it = redis.pcall(...); if type(it) == 'table' and it.err then return it.err end return '' end
return { try('TIME'), try('SET', KEYS[1], 'tollgate', 'PX', '1000'), try('GET', KEYS[1]), try('SETRANGE', KEYS[1], '0', 'T'),
  try('DEL', KEYS[1]) }";
const DECIDE_NAMES: &[&str] = &["time", "set", "get", "setrange", "del"];

/// What a heartbeat calls.
const HEARTBEAT: &str = "\
local function try(...) local it = redis.pcall(...); if type(it) == 'table' and it.err then return it.err end return '' end
local all = { try('ZADD', KEYS[1], '1', 'tollgate'), try('ZREMRANGEBYSCORE', KEYS[1], '2', '3'), try('ZCARD', KEYS[1]),
  try('ZRANGE', KEYS[1], '0', '-1'), try('PEXPIRE', KEYS[1], '1000') }
redis.pcall('DEL', KEYS[1])
return all";
const HEARTBEAT_NAMES: &[&str] = &["zadd", "zremrangebyscore", "zcard", "zrange", "pexpire"];

/// Tries what the store does, with both forms of names.
pub(crate) async fn access(
    server: &mut Server,
    namespace: &str,
    is_cluster: bool,
    user: Option<&str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let names = [
        format!("{{{namespace}}}:doctor"),
        format!("{namespace}:{{doctor}}:doctor"),
    ];
    let remedy = remedy(namespace, is_cluster, user);
    let (mut missing, mut writes) = (Vec::new(), None);
    for name in &names {
        match server.eval::<Vec<String>>(DECIDE, name).await {
            Ok(answers) => {
                for (command, answer) in DECIDE_NAMES.iter().zip(&answers) {
                    if answer.is_empty() || answer.starts_with("MOVED") {
                        continue;
                    }
                    match is_refusal(answer) {
                        true => missing.push(about(command, answer, name)),
                        false => writes = writes.or_else(|| refused_write(answer)),
                    }
                }
            }
            // The key lies on another server.
            Err(wrong) if is_elsewhere(&wrong) => {}
            Err(wrong) => {
                let said = words(&wrong);
                match is_refusal(&said) {
                    true => missing.push(about("eval", &said, name)),
                    false => writes = writes.or_else(|| refused_write(&said)),
                }
            }
        }
    }
    let sha = server
        .ask::<redis::Value>(&["EVALSHA", &"0".repeat(40), "1", &names[0]])
        .await;
    if let Err(wrong) = sha {
        let said = words(&wrong);
        if is_refusal(&said) {
            missing.push(about("evalsha", &said, &names[0]));
        }
    }
    let mut named = HashSet::new();
    missing.retain(|right| named.insert(right.clone()));
    findings.push(match missing.is_empty() {
        true => Finding::fine(CHECK, "the user may do what a decision takes"),
        false => Finding::error(
            CHECK,
            format!(
                "the user may not {}: no request is decided here",
                missing.join(", ")
            ),
            remedy.clone(),
        ),
    });
    findings.extend(writes);
    findings.extend(heartbeats(server, &names[0], &remedy).await);
    findings
}

/// Heartbeats can be done without.
async fn heartbeats(server: &mut Server, name: &str, remedy: &str) -> Option<Finding> {
    let answers = server.eval::<Vec<String>>(HEARTBEAT, name).await.ok()?;
    let refused = HEARTBEAT_NAMES
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| is_refusal(answer));
    let refused: Vec<&str> = refused.map(|(command, _)| *command).collect();
    (!refused.is_empty()).then(|| {
        Finding::warning(
            "heartbeats",
            format!(
                "the user may not {}: processes cannot see how many they are, nor compare their quotas and secrets",
                refused.join(", ")
            ),
            format!("{remedy}; or call without_heartbeats()"),
        )
    })
}

/// Why nothing can be written at present, though the user may.
fn refused_write(said: &str) -> Option<Finding> {
    let starts = |code: &str| said.trim_start_matches('-').starts_with(code);
    if starts("READONLY") {
        // The finding about its role says all of it.
        return None;
    }
    let (why, remedy) = if starts("OOM") || said.contains("maxmemory") {
        (
            "the server is full, and refuses takes (OOM): each rule's on_store_error answers",
            "raise maxmemory, or cap new keys (`cap_new_keys`); `tollgate size` says how much your rules need",
        )
    } else if starts("MISCONF") {
        (
            "the server cannot write its snapshot, and refuses takes (MISCONF)",
            "make room on its disk, or CONFIG SET stop-writes-on-bgsave-error no",
        )
    } else if starts("NOREPLICAS") {
        (
            "too few replicas are connected, and takes are refused (NOREPLICAS)",
            "start the replicas, or lower min-replicas-to-write",
        )
    } else if starts("CLUSTERDOWN") {
        (
            "the cluster is down (CLUSTERDOWN)",
            "see CLUSTER INFO; cluster-require-full-coverage no keeps the other shards at work",
        )
    } else if starts("LOADING") {
        (
            "the server is loading its data (LOADING)",
            "wait, and run this again",
        )
    } else {
        return Some(Finding::error(
            WRITE,
            format!("a write was refused: {said}"),
            "see the server's log",
        ));
    };
    Some(Finding::error(WRITE, why, remedy))
}

fn is_elsewhere(wrong: &RedisError) -> bool {
    matches!(wrong.code(), Some("MOVED" | "ASK"))
}

/// `set (on {shop}:doctor)`: the name where it is the key and not the command.
fn about(command: &str, said: &str, name: &str) -> String {
    match said.to_lowercase().contains("key") {
        true => format!("touch keys such as {name}"),
        false => command.to_owned(),
    }
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
    use crate::doctor::finding::Level;

    #[test]
    fn each_reason_for_refused_writes_has_its_own_remedy() {
        for (said, says, remedy) in [
            ("OOM command not allowed", "(OOM)", "raise maxmemory"),
            ("-OOM command not allowed", "(OOM)", "raise maxmemory"),
            ("ERR used memory > 'maxmemory'", "(OOM)", "raise maxmemory"),
            (
                "MISCONF Redis is configured to save snapshots",
                "(MISCONF)",
                "stop-writes-on-bgsave-error",
            ),
            (
                "NOREPLICAS Not enough good replicas",
                "(NOREPLICAS)",
                "min-replicas-to-write",
            ),
            (
                "CLUSTERDOWN The cluster is down",
                "(CLUSTERDOWN)",
                "CLUSTER INFO",
            ),
            ("LOADING Redis is loading", "(LOADING)", "run this again"),
            ("ERR of another kind", "ERR of another kind", "log"),
        ] {
            let finding = refused_write(said).expect("it is refused");
            assert_eq!((finding.level, finding.check), (Level::Error, WRITE));
            assert!(finding.says.contains(says), "{said}: {finding:?}");
            assert!(finding.remedy.contains(remedy), "{said}: {finding:?}");
        }
        // What is found about its role says it.
        assert!(refused_write("READONLY You can't write against a replica").is_none());
    }

    #[test]
    fn a_remedy_names_the_user_and_what_a_cluster_takes_as_well() {
        let alone = remedy("shop", false, None);
        assert!(alone.starts_with("ACL SETUSER tollgate on "), "{alone}");
        assert!(!alone.contains("+cluster"), "{alone}");
        assert_eq!(alone, remedy("shop", false, Some("")));
        let cluster = remedy("shop", true, Some("limits"));
        assert!(cluster.starts_with("ACL SETUSER limits on "), "{cluster}");
        assert!(
            cluster.ends_with("+cluster|slots +cluster|info +asking"),
            "{cluster}"
        );
    }
}
