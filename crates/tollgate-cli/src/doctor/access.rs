//! What the user of the service may do: each command that the limiter needs is tried for real, on a key of its own.

use crate::doctor::{
    finding::{
        Finding,
        Level::{Error, Fine, Warning},
    },
    servers::{Server, words},
};

/// What each decision calls, and what a heartbeat calls. It answers with each command that failed, and why.
const TRY: &str = "\
local failed = {}
for _, call in ipairs({ {'time'}, {'set', KEYS[1], 'tollgate', 'PX', '1000'}, {'get', KEYS[1]}, {'setrange', KEYS[1], '0', 'T'},
  {'del', KEYS[1]}, {'zadd', KEYS[1], '1', 'tollgate'}, {'zremrangebyscore', KEYS[1], '2', '3'}, {'zcard', KEYS[1]},
  {'zrange', KEYS[1], '0', '-1'}, {'pexpire', KEYS[1], '1000'} }) do
  local it = redis.pcall(unpack(call))
  if type(it) == 'table' and it.err then failed[#failed + 1] = call[1] .. ' ' .. it.err end
end
redis.pcall('DEL', KEYS[1])
return failed";
const HEARTBEAT: &[&str] = &["zadd", "zremrangebyscore", "zcard", "zrange", "pexpire"];
/// Another server of the cluster has the key, no script has this hash, or what is found about the role says it.
const EXPECTED: &[&str] = &["MOVED", "ASK", "NOSCRIPT", "READONLY"];

/// Tries what the store does, with both forms of names.
pub(crate) async fn access(
    server: &mut Server,
    namespace: &str,
    is_cluster: bool,
    user: Option<&str>,
) -> Vec<Finding> {
    let (mut missing, mut findings, mut is_of_heartbeats) = (Vec::new(), Vec::new(), true);
    for name in [
        format!("{{{namespace}}}:doctor"),
        format!("{namespace}:{{doctor}}:doctor"),
    ] {
        let mut failed = match server.ask::<Vec<String>>(&["EVAL", TRY, "1", &name]).await {
            Ok(failed) => failed,
            Err(wrong) => vec![format!("eval {}", words(&wrong))],
        };
        let sha = ["EVALSHA", &"0".repeat(40), "1", &name];
        if let Err(wrong) = server.ask::<redis::Value>(&sha).await {
            failed.push(format!("evalsha {}", words(&wrong)));
        }
        for (command, said) in failed.iter().filter_map(|it| it.split_once(' ')) {
            let said = said.trim_start_matches('-');
            if EXPECTED.iter().any(|code| said.starts_with(code)) {
                continue;
            }
            if !is_refusal(said) {
                let says = format!(
                    "the server refuses takes, and each rule's on_store_error answers: {said}"
                );
                let remedy = "see what is found about its role, memory and disk, and its log; if it is loading its data, run this again";
                findings = vec![Error.of("write", says, remedy)];
                continue;
            }
            is_of_heartbeats &= HEARTBEAT.contains(&command);
            // It may be the key that is refused, and not the command.
            let what = match said.to_lowercase().contains("key") {
                true => format!("touch keys such as {name}"),
                false => command.to_owned(),
            };
            if !missing.contains(&what) {
                missing.push(what);
            }
        }
    }
    let (commands, remedy) = (missing.join(", "), remedy(namespace, is_cluster, user));
    findings.push(match (missing.is_empty(), is_of_heartbeats) {
        (true, _) => Fine.of("access", "the user may do what a decision takes", ""),
        (_, false) => {
            let says = format!("the user may not {commands}: no request is decided here");
            Error.of("access", says, remedy)
        }
        (_, true) => Warning.of(
            "access",
            format!(
                "the user may not {commands}: processes cannot see how many they are, nor compare their quotas and secrets"
            ),
            remedy + "; or call without_heartbeats()",
        ),
    });
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
