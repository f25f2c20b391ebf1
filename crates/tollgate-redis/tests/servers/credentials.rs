//! Who logs in, where credentials change while a service runs: on real servers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};
use tollgate_core::{Key, Limiter, MAX_PERIOD, Outcome, Quota, Rule, Source};
use tollgate_redis::{Credentials, CredentialsProvider, Keys, Partition, RedisStore};
use tollgate_test_servers::{
    eventually::eventually,
    redis_cluster::RedisCluster,
    redis_server::{PATIENCE, RedisServer},
};

/// More than any test takes, so that what was taken is seen.
const LIMIT: u64 = 1_000_000;

struct Service {
    limiter: Limiter,
    key: Key,
}

impl Service {
    async fn start(address: &str, provider: impl CredentialsProvider) -> Self {
        let store = RedisStore::builder(address, "shop", Keys::plain())
            .partition(Partition::Key)
            .deadline(PATIENCE)
            .credentials(provider)
            .connect()
            .expect("a valid address");
        // A request before that would open the breaker, which lets only a share of the next ones through.
        timeout(PATIENCE, store.connected())
            .await
            .expect("a connection");
        let rule = Rule::new("api", Quota::fixed_window(LIMIT, MAX_PERIOD));
        let service = Self {
            limiter: Limiter::new(store, [rule]).expect("a valid rule"),
            key: Key::of("client"),
        };
        assert!(service.takes().await);
        service
    }

    /// Takes a unit, and says whether it was Redis that decided.
    async fn takes(&self) -> bool {
        let check = self.limiter.check("api", &self.key).expect("it is there");
        let decision = self.limiter.acquire(&[check]).await;
        assert_ne!(decision.outcome(), Outcome::Deny);
        decision.verdicts()[0].source() == Source::Store
    }

    /// The units that Redis has counted.
    async fn taken(&self) -> u64 {
        let check = self.limiter.check("api", &self.key).expect("it is there");
        let decision = self.limiter.peek(&[check.with_cost(0)]).await;
        assert_eq!(decision.verdicts()[0].source(), Source::Store);
        LIMIT - decision.verdicts()[0].remaining()
    }
}

/// The connections of users with this name, by their numbers.
async fn connections(server: &RedisServer, user: &str) -> Vec<String> {
    let clients = server.command(&["CLIENT", "LIST"]).await;
    let user = format!("user={user} ");
    let ours = clients.lines().filter(|line| line.contains(&user));
    let id = |line: &str| {
        line.split(' ')
            .find_map(|word| word.strip_prefix("id="))
            .map(str::to_owned)
    };
    ours.filter_map(id).collect()
}

/// The one connection of this user, once there is no other: on a busy machine a first attempt may have ended, and the server may
/// not have read that yet.
async fn only_connection(server: &RedisServer, user: &str) -> Vec<String> {
    eventually("there is one connection", || async {
        let connections = connections(server, user).await;
        (connections.len() == 1).then_some(connections)
    })
    .await
}

/// Gives a token that is a user of its own, and ends it at the end of its life: with the user go its connections.
#[derive(Clone)]
struct Tokens {
    server: Arc<RedisServer>,
    issued: Arc<AtomicU32>,
    expired: Arc<AtomicU32>,
}

const LIFE: Duration = Duration::from_secs(6);

impl Tokens {
    fn new(server: RedisServer) -> Self {
        Self {
            server: Arc::new(server),
            issued: Arc::default(),
            expired: Arc::default(),
        }
    }

    async fn issue(self) -> Result<Credentials, std::convert::Infallible> {
        let number = self.issued.fetch_add(1, Ordering::SeqCst) + 1;
        let user = format!("token-{number}");
        let words = ["ACL", "SETUSER", &user, "on", ">sesame", "~*", "+@all"];
        assert_eq!(self.server.command(&words).await, "+OK\r\n");
        let (server, expired, gone) = (self.server, self.expired, user.clone());
        tokio::spawn(async move {
            sleep(LIFE).await;
            assert_eq!(server.command(&["ACL", "DELUSER", &gone]).await, ":1\r\n");
            expired.fetch_add(1, Ordering::SeqCst);
        });
        Ok(Credentials::new(user, "sesame").expires_in(LIFE))
    }
}

#[tokio::test]
async fn a_connection_outlives_its_tokens_and_no_request_is_dropped() {
    let tokens = Tokens::new(RedisServer::start(&[]).await);
    let (issued, server) = (Arc::clone(&tokens.issued), Arc::clone(&tokens.server));
    let address = server.url();
    let provider = tokens.clone();
    let service = Service::start(&address, move || provider.clone().issue()).await;
    let first = connections(&server, "token-1").await;
    assert_eq!(first.len(), 1);
    let mut taken = 1;
    // Each of them would have ended the connection. Requests are under way all the time.
    while tokens.expired.load(Ordering::SeqCst) < 2 {
        sleep(Duration::from_millis(2)).await;
        let check = service.limiter.check("api", &service.key);
        let check = check.expect("it is there");
        let together = [(); 16].map(|()| service.limiter.acquire(&[check]));
        for decision in together {
            let source = decision.await.verdicts()[0].source();
            assert_eq!(source, Source::Store, "request {taken}");
            taken += 1;
        }
    }
    assert_eq!(service.taken().await, taken);
    let last = format!("token-{}", issued.load(Ordering::SeqCst));
    eventually("the connection is logged in by the last token", || async {
        (connections(&server, &last).await == first).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_connection_goes_on_while_its_provider_fails_or_is_refused_and_logs_in_anew_after() {
    let server = RedisServer::start(&[]).await;
    for user in ["one", "two"] {
        let words = ["ACL", "SETUSER", user, "on", ">sesame", "~*", "+@all"];
        assert_eq!(server.command(&words).await, "+OK\r\n");
    }
    let answer = |user: &str, password: &str| {
        let lifetime = Duration::from_millis(200);
        Ok(Credentials::new(user, password).expires_in(lifetime))
    };
    let next = Arc::new(Mutex::new(answer("one", "sesame")));
    let asked = Arc::new(AtomicU32::new(0));
    let (given, calls) = (Arc::clone(&next), Arc::clone(&asked));
    let service = Service::start(&server.url(), move || {
        calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(given.lock().expect("no thread panics").clone())
    })
    .await;
    let first = only_connection(&server, "one").await;
    // It would be good for ever, if it were good.
    let refused = Ok(Credentials::new("one", "wrong"));
    let mut vain = vec![Err("the vault is sealed"), refused];
    // From Redis 8 on a log-in that is refused ends the one before, and so the connection.
    let info = server.command(&["INFO", "server"]).await;
    let version = info.split("redis_version:").nth(1).expect("a version");
    if version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        >= Some(8)
    {
        vain.pop();
    }
    for vain in vain {
        *next.lock().expect("no thread panics") = vain;
        let before = asked.load(Ordering::SeqCst);
        eventually("the provider is asked in vain", || async {
            assert!(service.takes().await);
            (asked.load(Ordering::SeqCst) >= before + 3).then_some(())
        })
        .await;
        assert_eq!(connections(&server, "one").await, first);
    }
    *next.lock().expect("no thread panics") = answer("two", "sesame");
    eventually("the connection logs in anew", || async {
        assert!(service.takes().await);
        (connections(&server, "two").await == first).then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_credentials_there_is_no_connection_and_the_start_goes_on() {
    let server = RedisServer::start(&[]).await;
    let store = RedisStore::builder(server.url(), "shop", Keys::plain())
        .credentials(|| async { Err("the vault is sealed") })
        .connect()
        .expect("a valid address");
    let rule = Rule::new("api", Quota::fixed_window(2, MAX_PERIOD));
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    let key = Key::of("client");
    eventually("a reset says why", || async {
        let error = limiter
            .reset("api", &key)
            .expect("it is there")
            .await
            .err()?;
        error
            .to_string()
            .contains("no credentials: the vault is sealed")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_server_of_a_cluster_is_logged_in_to_and_its_tokens_renewed() {
    let cluster = RedisCluster::start_patient().await;
    for server in 0..6 {
        for user in ["one", "two"] {
            let words = ["ACL", "SETUSER", user, "on", ">sesame", "~*", "+@all"];
            cluster.say(server, &words).await;
        }
    }
    let second = Arc::new(AtomicBool::new(false));
    let is_second = Arc::clone(&second);
    let service = Service::start(&cluster.url(), move || {
        let user = if is_second.load(Ordering::SeqCst) {
            "two"
        } else {
            "one"
        };
        let lifetime = Duration::from_millis(400);
        async move {
            Ok::<_, std::convert::Infallible>(Credentials::new(user, "sesame").expires_in(lifetime))
        }
    })
    .await;
    second.store(true, Ordering::SeqCst);
    let until = Instant::now() + PATIENCE;
    for primary in 0..3 {
        while connections(cluster.server(primary), "two").await.is_empty()
            || !connections(cluster.server(primary), "one").await.is_empty()
        {
            assert!(service.takes().await);
            assert!(
                Instant::now() < until,
                "server {primary} keeps the old token"
            );
        }
    }
}
