//! A user with no more rights than it needs.

use std::time::Duration;

use crate::{RedisStore, RedisStoreBuilder};
use redis::Value;
use tokio::time::timeout;
use tollgate_core::{Key, Limiter, MAX_PERIOD, MINUTE, Outcome, Quota, Rule, Source, Step};
use tollgate_test_servers::{
    blocking_server::RedisServer, eventually::eventually, redis_client::RedisClient,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The words of the guide that make the user.
fn line() -> &'static str {
    let page = include_str!("../../../guide/redis.md");
    page.lines()
        .find_map(|line| line.strip_prefix("127.0.0.1:6379> "))
        .filter(|line| line.starts_with("ACL SETUSER tollgate "))
        .expect("the page has the line")
}

/// The commands that the user is given there.
fn commands() -> Vec<&'static str> {
    line()
        .split(' ')
        .filter(|word| word.starts_with('+'))
        .collect()
}

/// A server with the user of the guide, but for one command.
fn server_without(command: &str) -> RedisServer {
    let words = line().split(' ').filter(|word| *word != command);
    server_with(&words.collect::<Vec<_>>().join(" "))
}

/// A server with the user that this line makes.
fn server_with(line: &str) -> RedisServer {
    let server = RedisServer::start(&[]);
    let answer = RedisClient::connect(server.address()).say(line);
    assert_eq!(answer, Value::Okay, "{line}");
    server
}

async fn answer<T: Send>(step: Step<T>) -> T {
    timeout(PATIENCE, step).await.expect("an answer")
}

/// A connection of the user's.
fn logged_in(server: &RedisServer) -> RedisClient {
    let mut connection = RedisClient::connect(server.address());
    let answer = connection.say("AUTH tollgate sesame");
    assert_eq!(answer, Value::Okay);
    connection
}

fn builder(server: &RedisServer, database: &str) -> RedisStoreBuilder {
    let port = server.port();
    let address = format!("redis://tollgate:sesame@127.0.0.1:{port}{database}");
    let secret = crate::Secret::from_bytes([7; 32]).expect("32 bytes");
    RedisStore::builder(&address, "shop", crate::Keys::hashed(secret))
}

async fn works(server: &RedisServer) -> Result<(), &'static str> {
    works_with(builder(server, "")).await
}

/// What a service does: the first thing that does not work.
async fn works_with(builder: RedisStoreBuilder) -> Result<(), &'static str> {
    let store = builder.deadline(PATIENCE).connect().expect("a runtime");
    timeout(PATIENCE, store.connected())
        .await
        .expect("it may connect");
    let rule = Rule::new("api", Quota::fixed_window(2, MAX_PERIOD));
    let rule = rule.durable(|_| String::from("client"));
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    let key = Key::of("client");
    let check = limiter.check("api", &key).expect("it is there");
    // Twice: the server learns the script, and knows it.
    for _ in 0..2 {
        let decision = answer(limiter.acquire(&[check])).await;
        if decision.verdicts()[0].source() != Source::Store {
            return Err("a request is decided");
        }
    }
    assert_eq!(
        answer(limiter.acquire(&[check])).await.outcome(),
        Outcome::Deny
    );
    let reset = limiter.reset("api", &key).expect("it is there");
    answer(reset).await.map_err(|_| "a client is reset")?;
    let looked = answer(limiter.peek(&[check.with_cost(0)])).await;
    assert_eq!(looked.verdicts()[0].remaining(), 2);
    let decision = answer(limiter.acquire(&[check])).await;
    let reserved = limiter.ticket(&[check], &decision).into_reservation(MINUTE);
    let reserved = answer(reserved)
        .await
        .map_err(|_| "a reservation is made")?;
    let redeemed = limiter.redeem(&reserved).expect("it is of this store");
    let settled = answer(redeemed.settle(0)).await;
    settled.map_err(|_| "a reservation is settled")
}

/// The commands of heartbeats.
const HEARTBEATS: [&str; 5] = [
    "+zadd",
    "+zremrangebyscore",
    "+zcard",
    "+zrange",
    "+pexpire",
];

#[tokio::test]
async fn the_user_of_the_guide_needs_each_of_its_commands() {
    assert_eq!(works(&server_with(line())).await, Ok(()));
    let others = commands().into_iter().filter(|it| !HEARTBEATS.contains(it));
    // Without it, windows are written as a whole.
    for command in others.filter(|it| *it != "+setrange") {
        let server = server_without(command);
        assert!(works(&server).await.is_err(), "{command} is not needed");
    }
}

/// The commands that the server has refused to the user.
fn refused(server: &RedisServer) -> Vec<String> {
    let log = RedisClient::connect(server.address()).say("ACL LOG 100");
    let Value::Array(entries) = log else {
        panic!("a log is a list");
    };
    let object = |entry: &Value| {
        let Value::Array(fields) = entry else {
            panic!("an entry is a list");
        };
        let text = |field: &Value| match field {
            Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        let at = fields.iter().position(|field| text(field) == "object");
        text(&fields[at.expect("each entry has it") + 1])
    };
    let refused = entries.iter().map(object);
    // Not needed: the server knows the connection by its name. Redis 6.2 does not log which command of `client` it was.
    refused
        .filter(|it| it != "client|setinfo" && it != "client")
        .collect()
}

#[tokio::test]
async fn the_heartbeats_of_the_user_of_the_guide_are_refused_nothing() {
    let server = server_with(line());
    let store = builder(&server, "").connect().expect("a runtime");
    let rule = Rule::new("api", Quota::fixed_window(2, MINUTE));
    let _limiter = Limiter::new(store.clone(), [rule]).expect("a valid rule");
    eventually("it is counted, and its quotas are reported", || async {
        let quotas = RedisClient::connect(server.address()).say("ZCARD {shop}:quotas");
        // The rule, and by which secret keys are written.
        (store.instances() == 1 && quotas == Value::Int(2)).then_some(())
    })
    .await;
    assert_eq!(refused(&server), Vec::<String>::new());
}

#[tokio::test]
async fn heartbeats_need_each_of_their_commands() {
    for command in HEARTBEATS {
        let server = server_without(command);
        let store = builder(&server, "").connect().expect("a runtime");
        let rule = Rule::new("api", Quota::fixed_window(2, MINUTE));
        let _limiter = Limiter::new(store, [rule]).expect("a valid rule");
        eventually(&format!("{command} is refused"), || async {
            let refused = refused(&server);
            refused.iter().any(|it| *it == command[1..]).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_user_of_the_guide_needs_select_for_a_database() {
    let server = server_with(&format!("{} +select", line()));
    assert_eq!(works_with(builder(&server, "/1")).await, Ok(()));
    // Without it a connection is refused on its way.
    let server = server_with(line());
    let mut connection = logged_in(&server);
    let Value::ServerError(refused) = connection.say("SELECT 1") else {
        panic!("the user may not");
    };
    assert_eq!(refused.code(), "NOPERM");
}
