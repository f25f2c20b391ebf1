//! A user with no more rights than it needs.

use std::time::Duration;

use tokio::time::timeout;
use tollgate_core::{Key, Limiter, MINUTE, Outcome, Quota, Rule, Source, Step};
use tollgate_redis::{Partition, RedisStore, RedisStoreBuilder};

use crate::support::{
    blocking_server::RedisServer,
    resp::{Resp, Value},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The words of the guide that make the user.
fn line() -> &'static str {
    let page = include_str!("../../src/guide/access.rs");
    page.lines()
        .find_map(|line| line.strip_prefix("//! 127.0.0.1:6379> "))
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
    let answer = Resp::connect(server.address()).say(line);
    assert_eq!(answer, Value::Status("OK".into()), "{line}");
    server
}

async fn answer<T: Send>(step: Step<T>) -> T {
    timeout(PATIENCE, step).await.expect("an answer")
}

/// What a service does: the first thing that does not work.
async fn works(server: &RedisServer) -> Result<(), &'static str> {
    let address = format!("redis://tollgate:sesame@127.0.0.1:{}", server.port());
    let builder = RedisStore::builder(&address, "shop").expect("a valid address");
    works_with(builder).await
}

async fn works_with(builder: RedisStoreBuilder) -> Result<(), &'static str> {
    let store = builder
        .deadline(PATIENCE)
        .and_then(|builder| builder.connect())
        .expect("a runtime");
    timeout(PATIENCE, store.connected())
        .await
        .expect("it may connect");
    let rule = Rule::new("api", Quota::fixed_window(2, 60 * MINUTE));
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    let key = Key::of(["client"]);
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
    Ok(())
}

#[tokio::test]
async fn the_user_of_the_guide_may_do_all_that_a_store_does() {
    assert_eq!(works(&server_without("nothing")).await, Ok(()));
}

#[tokio::test]
async fn the_user_of_the_guide_needs_each_of_its_commands() {
    assert!(!commands().is_empty());
    for command in commands() {
        let server = server_without(command);
        assert!(works(&server).await.is_err(), "{command} is not needed");
    }
}

#[tokio::test]
async fn what_the_guide_adds_for_one_slot_and_for_a_database_is_enough_and_needed() {
    let with = |server: &RedisServer| {
        let address = format!("redis://tollgate:sesame@127.0.0.1:{}", server.port());
        let in_a_database = RedisStore::builder(&format!("{address}/1"), "shop");
        let in_one_slot = RedisStore::builder(&address, "shop");
        (
            in_a_database.expect("a valid address"),
            in_one_slot
                .expect("a valid address")
                .partition(Partition::One),
        )
    };
    let server = server_with(&format!("{} ~{{shop}}:* +select", line()));
    let (in_a_database, in_one_slot) = with(&server);
    assert_eq!(works_with(in_a_database).await, Ok(()));
    assert_eq!(works_with(in_one_slot).await, Ok(()));
    // Without `select` there is no connection at all; without the other keys there are no decisions.
    let server = server_with(line());
    let (in_a_database, in_one_slot) = with(&server);
    let store = in_a_database.connect().expect("a runtime");
    let limiter = Limiter::new(store, [Rule::new("api", Quota::gcra(1, MINUTE))]);
    let limiter = limiter.expect("a valid rule");
    let check = limiter
        .check("api", &Key::of(["client"]))
        .expect("it is there");
    let decision = answer(limiter.acquire(&[check])).await;
    assert_eq!(decision.verdicts()[0].source(), Source::Fallback);
    assert!(works_with(in_one_slot).await.is_err());
}

#[tokio::test]
async fn the_user_of_the_guide_may_touch_no_other_key() {
    let server = server_without("nothing");
    let mut connection = Resp::connect(server.address());
    assert_eq!(
        connection.say("AUTH tollgate sesame"),
        Value::Status("OK".into())
    );
    for command in [
        "GET other",
        "KEYS *",
        "FLUSHALL",
        "CONFIG GET maxmemory",
        "ACL LIST",
    ] {
        let answer = connection.say(command);
        assert!(
            matches!(&answer, Value::Error(error) if error.starts_with("NOPERM")),
            "{command}: {answer:?}"
        );
    }
}
