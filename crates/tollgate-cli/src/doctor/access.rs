//! What the user of the service may do: each command that the limiter needs is tried for real, on a key of its own.

use crate::doctor::{
    finding::{
        Finding,
        Level::{Error, Fine, Warning},
    },
    servers::{Server, words},
};

/// What each decision calls, and what a heartbeat calls.
const TRY: &str = "\
local function try(...) local it = redis.pcall(...); if type(it) == 'table' and it.err then return it.err end return '' end
local all = { try('TIME'), try('SET', KEYS[1], 'tollgate', 'PX', '1000'), try('GET', KEYS[1]), try('SETRANGE', KEYS[1], '0', 'T'),
  try('DEL', KEYS[1]), try('ZADD', KEYS[1], '1', 'tollgate'), try('ZREMRANGEBYSCORE', KEYS[1], '2', '3'), try('ZCARD', KEYS[1]),
  try('ZRANGE', KEYS[1], '0', '-1'), try('PEXPIRE', KEYS[1], '1000') }
redis.pcall('DEL', KEYS[1])
return all";
const DECIDE: &[&str] = &["time", "set", "get", "setrange", "del"];
const HEARTBEAT: &[&str] = &["zadd", "zremrangebyscore", "zcard", "zrange", "pexpire"];

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
    let (mut missing, mut heartbeats, mut writes) = (Vec::new(), Vec::new(), None);
    let mut note = |command: &'static str, said: &str, name: &str| {
        let starts = |code: &&str| said.trim_start_matches('-').starts_with(*code);
        // Another server of the cluster has the key, no script has this hash, or what is found about its role says it.
        if said.is_empty() || ["MOVED", "ASK", "NOSCRIPT", "READONLY"].iter().any(starts) {
            return;
        }
        if !is_refusal(said) {
            let says =
                format!("the server refuses takes, and each rule's on_store_error answers: {said}");
            let remedy = "see what is found about its role, memory and disk, and its log; if it is loading its data, run this again";
            writes = Some(Error.of("write", says, remedy));
            return;
        }
        // It may be the key that is refused, and not the command.
        let what = match said.to_lowercase().contains("key") {
            true => format!("touch keys such as {name}"),
            false => command.to_owned(),
        };
        let list = match HEARTBEAT.contains(&command) {
            true => &mut heartbeats,
            false => &mut missing,
        };
        if !list.contains(&what) {
            list.push(what);
        }
    };
    for name in &names {
        match server.ask::<Vec<String>>(&["EVAL", TRY, "1", name]).await {
            Ok(answers) => {
                for (command, said) in DECIDE.iter().chain(HEARTBEAT).zip(&answers) {
                    note(command, said, name);
                }
            }
            Err(wrong) => note("eval", &words(&wrong), name),
        }
    }
    let sha = ["EVALSHA", &"0".repeat(40), "1", &names[0]];
    if let Err(wrong) = server.ask::<redis::Value>(&sha).await {
        note("evalsha", &words(&wrong), &names[0]);
    }
    let remedy = remedy(namespace, is_cluster, user);
    let mut findings: Vec<_> = writes.into_iter().collect();
    if !missing.is_empty() {
        let commands = missing.join(", ");
        let says = format!("the user may not {commands}: no request is decided here");
        findings.push(Error.of("access", says, remedy));
        return findings;
    }
    findings.push(Fine.of("access", "the user may do what a decision takes", ""));
    if !heartbeats.is_empty() {
        let says = format!(
            "the user may not {}: processes cannot see how many they are, nor compare their quotas and secrets",
            heartbeats.join(", ")
        );
        let remedy = format!("{remedy}; or call without_heartbeats()");
        findings.push(Warning.of("heartbeats", says, remedy));
    }
    findings
}

/// Whether it is about a right that the user lacks.
fn is_refusal(said: &str) -> bool {
    let said = said.to_lowercase();
    let signs = [
        "noperm",
        "permission",
        "acl failure",
        "can't run this command",
        "noauth",
    ];
    signs.iter().any(|sign| said.contains(sign))
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
    fn a_remedy_names_the_user_and_what_a_cluster_takes_as_well() {
        let alone = remedy("shop", false, Some(""));
        assert!(alone.starts_with("ACL SETUSER tollgate on "), "{alone}");
        let cluster = remedy("shop", true, Some("limits"));
        assert!(
            cluster.ends_with("+cluster|slots +cluster|info +asking"),
            "{cluster}"
        );
    }
}
