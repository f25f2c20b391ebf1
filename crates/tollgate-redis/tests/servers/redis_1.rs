//! A store that is made from a client of redis-rs, on a real server.

#![cfg(feature = "redis-1")]

use tokio::time::timeout;
use tollgate_core::{Key, Limiter, MAX_PERIOD, Quota, Rule, Source};
use tollgate_redis::{
    Keys, RedisStore,
    redis_1::redis::{Client, Commands},
};
use tollgate_test_servers::redis_server::{PATIENCE, RedisServer};

const USER: &[&str] = &["ACL", "SETUSER", "limits", "on", ">sesame", "~*", "+@all"];

#[tokio::test]
async fn a_store_from_a_client_logs_in_and_writes_where_the_client_does() {
    let server = RedisServer::start(&[]).await;
    server.command(USER).await;
    let url = format!("redis://limits:sesame@127.0.0.1:{}/3", server.port());
    let client = Client::open(url).expect("a valid address");
    let store = RedisStore::builder(&client, "shop", Keys::plain()).deadline(PATIENCE);
    let store = store.connect().expect("it can be used");
    let connected = timeout(PATIENCE, store.connected()).await;
    connected.expect("it connects");
    let rule = Rule::new("api", Quota::fixed_window(2, MAX_PERIOD));
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    let check = limiter.check("api", &Key::of("client")).expect("a rule");
    let decision = limiter.acquire(&[check]).await;
    assert_eq!(decision.verdicts()[0].source(), Source::Store);
    // The name of the state, by redis-rs itself.
    let mut connection = client.get_connection().expect("the server is there");
    let names: Vec<String> = connection.keys("*api*").expect("names");
    assert_eq!(names.len(), 1);
    let clients = server.command(&["CLIENT", "LIST"]).await;
    let ours = clients.lines().find(|line| line.contains("cmd=eval"));
    let ours = ours.expect("the store is connected");
    assert!(
        ours.contains("user=limits") && ours.contains("db=3"),
        "{ours}"
    );
}
