//! What the user of the service may do: each command that the limiter needs is tried for real, on a key of its own.

use tollgate_redis::AddressParts;

use crate::doctor::{
    finding::Findings,
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

/// The words of servers for a right that the user lacks.
const REFUSALS: &[&str] = &[
    "noperm",
    "permission",
    "acl failure",
    "can't run this command",
    "noauth",
];

/// Tries what the store does, with both forms of names.
pub(crate) async fn access(
    server: &mut Server,
    namespace: &str,
    address: &AddressParts,
    found: &mut Findings,
) {
    let (mut missing, mut refusal, mut is_of_heartbeats) = (Vec::new(), None, true);
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
            let (said, lower) = (said.trim_start_matches('-'), said.to_lowercase());
            if EXPECTED.iter().any(|code| said.starts_with(code)) {
                continue;
            }
            if !REFUSALS.iter().any(|words| lower.contains(words)) {
                refusal = Some(said.to_owned());
                continue;
            }
            is_of_heartbeats &= HEARTBEAT.contains(&command);
            // It may be the key that is refused, and not the command.
            let what = match lower.contains("key") {
                true => format!("touch keys such as {name}"),
                false => command.to_owned(),
            };
            if !missing.contains(&what) {
                missing.push(what);
            }
        }
    }
    if let Some(said) = refusal {
        found.error("write", format!(
            "the server refuses takes, and each rule's on_store_error answers: {said}\n\
             see what is found about its role, memory and disk, and its log; if it is loading its data, run this again"
        ));
    }
    let user = address.login[0].as_deref().filter(|user| !user.is_empty());
    let user = user.unwrap_or("tollgate");
    let cluster = match address.is_cluster {
        true => " +cluster|slots +cluster|info +asking",
        false => "",
    };
    let grant = format!(
        "ACL SETUSER {user} on resetkeys ~{{{namespace}}}:* ~{namespace}:{{* resetchannels -@all +eval +evalsha +get +set +setrange \
         +del +time +zadd +zremrangebyscore +zcard +zrange +pexpire{cluster}"
    );
    let says = format!("the user may not {}", missing.join(", "));
    match (missing.is_empty(), is_of_heartbeats) {
        (true, _) => found.fine("access", "the user may do what a decision takes"),
        (_, false) => found.error("access", format!("{says}: no request is decided here\n{grant}")),
        (_, true) => found.warning("access", format!(
            "{says}: processes cannot see how many they are, nor compare their quotas and secrets\n{grant}; or call without_heartbeats()"
        )),
    }
}
