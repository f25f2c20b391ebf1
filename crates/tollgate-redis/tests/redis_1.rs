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
use tollgate_core::{Check, Key, Limiter, MAX_PERIOD, Quota, Rule, Source};
use tollgate_redis::{
    Address, Keys, RedisStore, RedisStoreBuilder, SetupError,
    redis_1::{
        StreamedCredentials,
        redis::{self, BasicAuth, Client, Commands, RedisResult, StreamingCredentialsProvider},
    },
};
use tollgate_test_servers::{
    eventually::eventually,
    redis_server::{PATIENCE, RedisServer},
};

const USER: &[&str] = &["ACL", "SETUSER", "limits", "on", ">sesame", "~*", "+@all"];

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
    for query in ["", "?protocol=resp3"] {
        let url = format!("redis://limits:sesame@127.0.0.1:{}/3{query}", server.port());
        let client = Client::open(url).expect("a valid address");
        let limiter = works(&client, |builder| builder).await;
        assert_eq!(states(&client).len(), 1);
        let clients = server.command(&["CLIENT", "LIST"]).await;
        let ours = clients.lines().find(|line| line.contains("cmd=eval"));
        let ours = ours.expect("the store is connected");
        for what in ["user=limits", "db=3"] {
            assert!(ours.contains(what), "{ours} lacks {what}");
        }
        drop(limiter);
        server.command(&["FLUSHALL"]).await;
    }
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
