//! The servers of an address, and what the user of the service may do there: each command that the limiter needs is tried for real, on
//! a key of its own.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, aio::MultiplexedConnection};
use tollgate_redis::{Address, Place};
use tollgate_rules::redis::{Certificates, client_of};

use crate::{
    doctor::finding::Findings,
    report::{Failure, is_refusal},
};

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to one server.
pub(crate) struct Server {
    pub(crate) name: String,
    connection: MultiplexedConnection,
}

impl Server {
    /// One server of a cluster; or `None`: the only server, or the master that the sentinels name.
    pub(crate) async fn connect(
        address: &Address,
        trusted: Option<&Certificates>,
        place: Option<&Place>,
    ) -> Result<Self, Failure> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = async {
            let client = client_of(address, place, trusted).await?;
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connecting.await?;
            // A server that wants a password takes a connection without one, and refuses all that is asked.
            match Cmd::new().arg("PING").exec_async(&mut connection).await {
                Err(wrong) if wrong.code() == Some("NOAUTH") => Err(wrong),
                _ => Ok(connection),
            }
        };
        let name = match (&address.master, place.or(address.places.first())) {
            (Some(master), _) => format!("the master {master:?}"),
            (None, place) => place.map_or_else(String::new, ToString::to_string),
        };
        match connection.await {
            Ok(connection) => Ok(Self { name, connection }),
            Err(wrong) => Err(Failure::failed(format!(
                "{name} cannot be asked: {}; {}",
                words(&wrong),
                remedy(&wrong, address.is_encrypted)
            ))),
        }
    }

    /// Sends a command.
    pub(crate) async fn ask<T: FromRedisValue>(
        &mut self,
        command: &[&str],
    ) -> Result<T, RedisError> {
        let mut cmd = Cmd::new();
        cmd.arg(command).query_async(&mut self.connection).await
    }

    /// One setting, if it may be read.
    pub(crate) async fn setting(&mut self, name: &str) -> Option<String> {
        let found: Vec<String> = self.ask(&["CONFIG", "GET", name]).await.ok()?;
        found.into_iter().nth(1)
    }
}

/// What the server has said, in its words.
pub(crate) fn words(wrong: &RedisError) -> String {
    match (wrong.code(), wrong.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        _ => wrong.to_string(),
    }
}

fn remedy(wrong: &RedisError, is_encrypted: bool) -> &'static str {
    let words = words(wrong).to_lowercase();
    let has = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    if has(&["wrongpass", "noauth", "password authentication"]) {
        "give the user and the password in the address, as redis://user:password@host"
    } else if has(&["certificate"]) {
        "name the authority that its certificate is from with --ca, and the server as the certificate does"
    // Redis waits for the end of a line, which the first bytes of an encrypted connection do not have.
    } else if has(&["tls", "corrupt message"])
        || has(&["reset by peer", "broken pipe"]) && !is_encrypted
        || wrong.is_timeout() && is_encrypted
    {
        match is_encrypted {
            true => {
                "does it encrypt at this port? Without encryption an address begins with redis://"
            }
            false => {
                "does it encrypt at this port? Then an address begins with rediss://, rediss-cluster://"
            }
        }
    } else {
        "is the server running, the address right, and no firewall between?"
    }
}

/// What each decision calls, and what a heartbeat calls. It answers with each command that failed, and why.
const TRY: &str = "\
local failed = {}
for _, call in ipairs({ {'time'}, {'set', KEYS[1], 'tollgate', 'PX', '1000'}, {'get', KEYS[1]}, {'setrange', KEYS[1], '0', 'T'},
  {'pttl', KEYS[1]}, {'del', KEYS[1]}, {'zadd', KEYS[1], '1', 'tollgate'}, {'zremrangebyscore', KEYS[1], '2', '3'}, {'zcard', KEYS[1]},
  {'zrange', KEYS[1], '0', '-1'}, {'pexpire', KEYS[1], '1000'} }) do
  local it = redis.pcall(unpack(call))
  if type(it) == 'table' and it.err then failed[#failed + 1] = call[1] .. ' ' .. it.err end
end
redis.pcall('DEL', KEYS[1])
return failed";
const HEARTBEAT: &[&str] = &["zadd", "zremrangebyscore", "zcard", "zrange", "pexpire"];

/// Another server of the cluster has the key, no script has this hash, or what is found about the role says it.
const EXPECTED: &[&str] = &["MOVED", "ASK", "NOSCRIPT", "READONLY"];

/// Tries a right that only rules in Redis need.
async fn rules(server: &mut Server, namespace: &str, user: &str, found: &mut Findings) {
    let name = format!("{{{namespace}}}:doctor");
    let all = "return redis.call('hlen', KEYS[1])";
    if let Err(wrong) = server.ask::<u64>(&["EVAL", all, "1", &name]).await
        && is_refusal(&wrong.to_string())
    {
        found.note("rules", format!(
            "the user may not read or push rules in Redis, which a service with rules in a file does not need\n\
             ACL SETUSER {user} &{{{namespace}}}:rules +script|load +subscribe +publish +@hash +@sortedset +@stream"
        ));
    }
}

/// Tries what the store does, with both forms of names.
pub(crate) async fn access(
    server: &mut Server,
    namespace: &str,
    address: &Address,
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
            if !is_refusal(said) {
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
    let user = address
        .login
        .user
        .as_deref()
        .filter(|user| !user.is_empty())
        .unwrap_or("tollgate");
    let cluster = match address.is_cluster {
        true => " +cluster|slots +cluster|info +asking",
        false => "",
    };
    let grant = format!(
        "ACL SETUSER {user} on resetkeys ~{{{namespace}}}:* ~{namespace}:{{* resetchannels -@all +eval +evalsha +get +set +setrange \
         +del +time +pttl +zadd +zremrangebyscore +zcard +zrange +pexpire{cluster}"
    );
    rules(server, namespace, user, found).await;
    let says = format!("the user may not {}", missing.join(", "));
    match (missing.is_empty(), is_of_heartbeats) {
        (true, _) => found.fine("access", "the user may do what a decision takes"),
        (_, false) if missing == ["pttl"] => found.warning("access", format!(
            "{says}: reservations of durable rules cannot be settled; other requests are decided\n{grant}"
        )),
        (_, false) => found.error("access", format!("{says}: no request is decided here\n{grant}")),
        (_, true) => found.warning("access", format!(
            "{says}: processes cannot see how many they are, nor compare their quotas and secrets\n{grant}; or call without_heartbeats()"
        )),
    }
}
