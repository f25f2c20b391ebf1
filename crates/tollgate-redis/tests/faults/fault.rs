//! What can go wrong.

use std::{
    env,
    io::{self, Write as _},
    thread,
    time::Duration,
};

use redis::Value;
use tokio::task::JoinHandle;
use tollgate_test_servers::{
    numbers::Numbers,
    proxy::{self, Proxy},
    redis_client::RedisClient,
    redis_server::{RedisServer, free_port},
};
use tollgate_test_services::instance::DEADLINE;

use crate::fleet::Fleet;

/// Settings of a server on which all of these can go wrong. The instances log in as `rl`, with the password `first`.
pub(crate) const SERVER: [&str; 8] = [
    "--enable-debug-command",
    "yes",
    "--user",
    "rl",
    "on",
    ">first",
    "~*",
    "+@all",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`, and a start without data.
    Killed,
    /// SIGSTOP, SIGCONT.
    Stopped,
    /// Answers come after the deadline.
    Slow,
    /// The network swallows everything.
    BlackHole,
    /// Connections are reset in the middle of an answer.
    Reset,
    ScriptFlushed,
    Flushed,
    /// A master becomes a replica, and a master again. It still denies, for which it only reads: so that it is felt, the
    /// states are lost.
    ReadOnly,
    Loading,
    /// As above: a server that is full still denies.
    OutOfMemory,
    ClientsKilled,
    /// The password is another for a while.
    Password,
    /// The states are hashes for a while.
    WrongType,
    /// No more clients are accepted, and those that are there are sent away.
    Full,
}

impl Fault {
    /// How often the states are lost.
    pub(crate) fn losses(self) -> u64 {
        u64::from(matches!(
            self,
            Self::Killed | Self::Flushed | Self::ReadOnly | Self::OutOfMemory
        ))
    }

    /// Whether requests fail of it for certain.
    pub(crate) fn is_felt(self) -> bool {
        !matches!(
            self,
            Self::ScriptFlushed | Self::Flushed | Self::ClientsKilled
        )
    }

    pub(crate) async fn begin(
        self,
        server: &mut RedisServer,
        proxy: &Proxy,
        numbers: &mut Numbers,
    ) -> Healing {
        let mut healing = Healing::default();
        let admin = || RedisClient::connect(([127, 0, 0, 1], server.port()).into());
        match self {
            Self::Killed => server.kill(),
            Self::Stopped => server.stop(),
            Self::Slow => {
                let delay = DEADLINE + Duration::from_millis(50 + numbers.below(200));
                proxy.set(proxy::Fault::Delay(delay, 2 * delay));
            }
            Self::BlackHole => proxy.set(proxy::Fault::BlackHole),
            Self::Reset => proxy.set(proxy::Fault::ResetAfter(numbers.below(400) as usize)),
            Self::ScriptFlushed => done(&admin().say("SCRIPT FLUSH")),
            Self::Flushed => done(&admin().say("FLUSHALL")),
            Self::ReadOnly => {
                // No server listens there: it stays a replica with the data that it has.
                let nobody = free_port();
                let mut admin = admin();
                done(&admin.say("FLUSHALL"));
                done(&admin.say(&format!("REPLICAOF 127.0.0.1 {nobody}")));
            }
            Self::Loading => {
                let mut admin = admin();
                done(&admin.say("DEBUG POPULATE 20000"));
                done(&admin.say("CONFIG SET key-load-delay 50"));
                done(&admin.say("CONFIG SET loading-process-events-interval-bytes 1024"));
                healing.loads = Some(tokio::task::spawn_blocking(move || {
                    done(&admin.say("DEBUG RELOAD"));
                    done(&admin.say("CONFIG SET key-load-delay 0"));
                }));
            }
            Self::OutOfMemory => {
                let mut admin = admin();
                done(&admin.say("FLUSHALL"));
                done(&admin.say("CONFIG SET maxmemory 1"));
            }
            Self::ClientsKilled => {
                let _ = admin().say("CLIENT KILL TYPE normal");
            }
            Self::Password => {
                let mut admin = admin();
                done(&admin.say("ACL SETUSER rl resetpass >second"));
                let _ = admin.say("CLIENT KILL USER rl");
            }
            Self::WrongType => {
                let mut admin = admin();
                for key in states(&mut admin) {
                    let aside = [&key[..], b":aside"].concat();
                    done(&admin.say("MULTI"));
                    let _ = admin.command([&b"RENAME"[..], &key, &aside]);
                    let _ = admin.command([&b"HSET"[..], &key, b"field", b"value"]);
                    let _ = admin.say("EXEC");
                    healing.aside.push((aside, key));
                }
            }
            Self::Full => {
                let mut admin = admin();
                done(&admin.say("CONFIG SET maxclients 1"));
                let _ = admin.say("CLIENT KILL TYPE normal");
                healing.guest = Some(admin);
            }
        }
        healing
    }

    pub(crate) async fn end(self, server: &mut RedisServer, proxy: &Proxy, healing: Healing) {
        let address = ([127, 0, 0, 1], server.port()).into();
        let admin = || RedisClient::connect(address);
        match self {
            Self::Killed => server.restart().await,
            Self::Stopped => server.resume(),
            Self::Slow | Self::BlackHole | Self::Reset => proxy.set(proxy::Fault::None),
            Self::ScriptFlushed | Self::Flushed | Self::ClientsKilled => {}
            Self::ReadOnly => done(&admin().say("REPLICAOF NO ONE")),
            Self::Loading => {
                let loads = healing.loads.expect("it loads");
                loads.await.expect("it has loaded");
            }
            Self::OutOfMemory => done(&admin().say("CONFIG SET maxmemory 0")),
            Self::Password => done(&admin().say("ACL SETUSER rl >first")),
            Self::WrongType => {
                let mut admin = admin();
                for (aside, key) in &healing.aside {
                    done(&admin.command([&b"RENAME"[..], aside, key]));
                }
            }
            Self::Full => {
                let mut guest = healing.guest.expect("it is connected");
                done(&guest.say("CONFIG SET maxclients 1000"));
            }
        }
    }
}

/// What the end of a fault needs.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    loads: Option<JoinHandle<()>>,
    /// Where the states lie, and their names.
    aside: Vec<(Vec<u8>, Vec<u8>)>,
    /// The one client that there is room for.
    guest: Option<RedisClient>,
}

/// The keys of the states.
fn states(admin: &mut RedisClient) -> Vec<Vec<u8>> {
    let Value::Array(keys) = admin.say("KEYS {faults}:*:*:*") else {
        panic!("KEYS answers a list");
    };
    let key = |value| match value {
        Value::BulkString(key) => key,
        other => panic!("{other:?} is not a key"),
    };
    keys.into_iter().map(key).collect()
}

fn done(answer: &Value) {
    assert_eq!(*answer, Value::Okay);
}

// Where the numbers of a test begin.

const NAME: &str = "TOLLGATE_FAULT_SEED";

/// Says how to repeat a test that fails.
#[derive(Debug)]
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) fn new() -> Self {
        Self(match env::var(NAME) {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|_| panic!("{NAME}={text:?} is not a number")),
            Err(_) => fastrand::u64(..),
        })
    }

    pub(crate) fn numbers(&self) -> Numbers {
        Numbers(self.0)
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = writeln!(io::stderr(), "to repeat it: {NAME}={}", self.0);
        }
    }
}

// Faults one after the other, in the order of the seed.

async fn survives(faults: &[Fault]) {
    let seed = Seed::new();
    let mut fleet = Fleet::start(&seed).await;
    fleet.suffers(faults).await;
}

#[tokio::test]
async fn a_server_that_dies_stands_still_or_loads_costs_what_is_stated_and_is_recovered_from() {
    survives(&[Fault::Killed, Fault::Stopped, Fault::Loading, Fault::Killed]).await;
}

#[tokio::test]
async fn a_network_in_trouble_costs_what_is_stated_and_is_recovered_from() {
    survives(&[Fault::Slow, Fault::BlackHole, Fault::Reset, Fault::Reset]).await;
}

#[tokio::test]
async fn lost_scripts_states_and_connections_cost_what_is_stated_and_are_recovered_from() {
    survives(&[
        Fault::ScriptFlushed,
        Fault::Flushed,
        Fault::ClientsKilled,
        Fault::WrongType,
        Fault::Flushed,
        Fault::ScriptFlushed,
    ])
    .await;
}

#[tokio::test]
async fn a_server_that_refuses_costs_what_is_stated_and_is_recovered_from() {
    survives(&[
        Fault::ReadOnly,
        Fault::OutOfMemory,
        Fault::Password,
        Fault::Full,
    ])
    .await;
}
