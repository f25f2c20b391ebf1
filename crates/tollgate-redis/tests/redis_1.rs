//! Stores that are made from addresses of redis-rs, on real servers.

#![cfg(feature = "redis-1")]

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::{sync::watch, time::timeout};
use tokio_stream::{StreamExt, wrappers::WatchStream};
use tollgate_core::{Check, Key, Limiter, MAX_PERIOD, MINUTE, Quota, Rule, Source};
use tollgate_redis::{
    Address, Keys, Partition, RedisStore, RedisStoreBuilder, SetupError,
    redis_1::{
        self, StreamedCredentials,
        redis::{
            self, BasicAuth, Client, Commands, ConnectionAddr, ConnectionInfo, RedisConnectionInfo,
            RedisResult, StreamingCredentialsProvider,
        },
    },
};
use tollgate_test_servers::{
    eventually::eventually,
    redis_cluster::RedisCluster,
    redis_server::{PATIENCE, RedisServer},
    sentinels::Group,
};

const USER: &[&str] = &["ACL", "SETUSER", "limits", "on", ">sesame", "~*", "+@all"];

fn login() -> RedisConnectionInfo {
    RedisConnectionInfo::default()
        .set_username("limits")
        .set_password("sesame")
}

/// A store that is connected, and has taken one unit.
async fn works(
    address: impl TryInto<Address, Error: Into<SetupError>>,
    change: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
) -> Limiter {
    let builder = RedisStore::builder(address, "shop", Keys::plain()).deadline(PATIENCE);
    let store = change(builder).connect().expect("it can be used");
    timeout(PATIENCE, store.connected())
        .await
        .expect("it connects");
    let rule = Rule::new("api", Quota::fixed_window(2, MAX_PERIOD));
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    let key = Key::of("client");
    let check: Check = limiter.check("api", &key).expect("the rule is there");
    let decision = limiter.acquire(&[check]).await;
    assert_eq!(decision.verdicts()[0].source(), Source::Store);
    limiter
}

/// The names of the states, by redis-rs itself.
fn states(client: &Client) -> Vec<String> {
    let mut connection = client.get_connection().expect("the server is there");
    let names: Vec<String> = connection.keys("*api*").expect("names");
    names
}

#[tokio::test]
async fn a_store_from_a_client_logs_in_and_writes_where_the_client_does() {
    let server = RedisServer::start(&[]).await;
    server.command(USER).await;
    for (query, protocol) in [("", "resp=2"), ("?protocol=resp3", "resp=3")] {
        let url = format!("redis://limits:sesame@127.0.0.1:{}/3{query}", server.port());
        let client = Client::open(url).expect("a valid address");
        let limiter = works(&client, |builder| builder).await;
        assert_eq!(states(&client).len(), 1);
        let clients = server.command(&["CLIENT", "LIST"]).await;
        let ours = clients.lines().find(|line| line.contains("cmd=eval"));
        let ours = ours.expect("the store is connected");
        for what in ["user=limits", "db=3", protocol] {
            assert!(ours.contains(what), "{ours} lacks {what}");
        }
        drop(limiter);
        server.command(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn whatever_redis_rs_takes_for_an_address_is_one() {
    let server = RedisServer::start(&["--unixsocket", "socket"]).await;
    let port = server.port();
    let place = ConnectionAddr::Tcp("127.0.0.1".into(), port);
    let info: ConnectionInfo = server.url().parse().expect("redis-rs takes it");
    works(place, |builder| builder).await;
    works(&info, |builder| builder).await;
    works(info, |builder| builder).await;
    for address in [
        redis_1::server(("127.0.0.1", port)),
        redis_1::server(server.url()),
        redis_1::server(ConnectionAddr::Unix(server.dir().join("socket"))),
    ] {
        works(address.expect("it can be used"), |builder| builder).await;
    }
}

#[tokio::test]
async fn sentinels_are_a_list_of_addresses() {
    let group = Group::start().await;
    assert_eq!(group.master.command(USER).await, "+OK\r\n");
    let sentinels = group.sentinels.iter().map(RedisServer::url);
    let address = redis_1::sentinel(sentinels, "mymaster", &login().set_db(1));
    works(address.expect("it can be used"), |builder| builder).await;
    let settings = login().set_db(1);
    let info: ConnectionInfo = group.master.url().parse().expect("redis-rs takes it");
    let client = Client::open(info.set_redis_settings(settings)).expect("a valid address");
    assert_eq!(states(&client).len(), 1);
}

#[tokio::test]
async fn a_cluster_is_a_list_of_addresses() {
    let cluster = RedisCluster::start().await;
    for server in 0..6 {
        cluster.say(server, USER).await;
    }
    let nodes = [0, 1, 2].map(|number| {
        let url = cluster.url_of([number]).replace("redis-cluster", "redis");
        let info: ConnectionInfo = url.parse().expect("redis-rs takes it");
        info.set_redis_settings(login())
    });
    let address = redis_1::cluster(nodes).expect("it can be used");
    works(address, |builder| builder.partition(Partition::Key)).await;
}

/// What is wrong with a store at this address.
#[cfg(feature = "tls")]
fn refused(address: Address) -> String {
    let store = RedisStore::builder(address, "shop", Keys::plain()).connect();
    store.expect_err("it is not to be connected").to_string()
}

#[cfg(feature = "tls")]
fn encrypted(insecure: bool) -> Address {
    let address = ConnectionAddr::TcpTls {
        host: "localhost".into(),
        port: 6379,
        insecure,
        tls_params: None,
    };
    address.try_into().expect("it may be given TLS yet")
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn an_encrypted_address_is_never_connected_by_a_default() {
    assert!(refused(encrypted(false)).contains("rustls"));
    let error = refused(encrypted(true));
    assert!(error.contains("`insecure`"), "{error}");
    assert!(error.contains("RedisStoreBuilder::tls"), "{error}");
}

/// A provider of redis-rs whose tokens the test gives out. Each subscription begins with the latest.
struct Stream {
    tokens: watch::Receiver<Option<BasicAuth>>,
    subscriptions: Arc<AtomicU32>,
}

impl StreamingCredentialsProvider for Stream {
    fn subscribe(
        &self,
    ) -> Pin<Box<dyn futures_core::Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
        self.subscriptions.fetch_add(1, Ordering::SeqCst);
        let tokens = WatchStream::new(self.tokens.clone());
        let none = || redis::RedisError::from((redis::ErrorKind::Client, "no token yet"));
        Box::pin(tokens.map(move |token| token.ok_or_else(none)))
    }
}

fn token(number: u32) -> Option<BasicAuth> {
    Some(BasicAuth::new(format!("token-{number}"), "sesame".into()))
}

#[tokio::test]
async fn each_item_of_a_stream_of_credentials_logs_in_anew_on_the_open_connection() {
    let server = RedisServer::start(&[]).await;
    for number in 1..=3 {
        let user = format!("token-{number}");
        let words = ["ACL", "SETUSER", &user, "on", ">sesame", "~*", "+@all"];
        assert_eq!(server.command(&words).await, "+OK\r\n");
    }
    let (tell, tokens) = watch::channel(None);
    let subscriptions = Arc::new(AtomicU32::new(0));
    let provider = Stream {
        tokens,
        subscriptions: Arc::clone(&subscriptions),
    };
    tell.send(token(1)).expect("it is not gone");
    let limiter = works(server.url(), |builder| {
        builder.credentials(StreamedCredentials::new(provider))
    })
    .await;
    let connection = |user: &'static str| {
        let server = &server;
        async move {
            let clients = server.command(&["CLIENT", "LIST"]).await;
            let line = clients.lines().find(|line| line.contains(user));
            line.and_then(|line| line.split(' ').next())
                .map(str::to_owned)
        }
    };
    let first = connection("user=token-1 ").await;
    assert!(first.is_some());
    tell.send(token(2)).expect("the store is subscribed");
    eventually(
        "the connection is logged in by the second token",
        || async { (connection("user=token-2 ").await == first).then_some(()) },
    )
    .await;
    // With its user a connection goes; the next one takes what came last.
    server.command(&["ACL", "DELUSER", "token-1"]).await;
    assert_eq!(connection("user=token-2 ").await, first);
    let refused = Some(BasicAuth::new("token-3".into(), "wrong".into()));
    tell.send(refused).expect("the store is subscribed");
    tell.send(token(3)).expect("the store is subscribed");
    eventually("the connection is logged in by the third token", || async {
        (connection("user=token-3 ").await == first).then_some(())
    })
    .await;
    server.command(&["CLIENT", "KILL", "USER", "token-3"]).await;
    eventually("there is another connection by the same token", || async {
        let other = connection("user=token-3 ").await;
        other.filter(|other| Some(other) != first.as_ref())
    })
    .await;
    assert_eq!(subscriptions.load(Ordering::SeqCst), 1);
    drop(limiter);
}

#[tokio::test]
async fn a_stream_without_credentials_says_why_there_is_no_connection() {
    let server = RedisServer::start(&[]).await;
    let (tell, tokens) = watch::channel(None);
    let provider = Stream {
        tokens,
        subscriptions: Arc::default(),
    };
    let store = RedisStore::builder(server.url(), "shop", Keys::plain())
        .credentials(StreamedCredentials::new(provider))
        .connect()
        .expect("a valid address");
    let limiter = Limiter::new(store, [Rule::new("api", Quota::gcra(5, MINUTE))]);
    let limiter = limiter.expect("a valid rule");
    let key = Key::of("client");
    let reset = || limiter.reset("api", &key).expect("the rule is there");
    eventually("a reset says why", || async {
        let error = reset().await.err()?.to_string();
        error.contains("no credentials: no token yet").then_some(())
    })
    .await;
    tell.send(Some(BasicAuth::new(String::new(), String::new())))
        .expect("the store is subscribed");
    server.command(&["CONFIG", "SET", "requirepass", ""]).await;
    eventually("Redis decides", || async { reset().await.ok() }).await;
}
