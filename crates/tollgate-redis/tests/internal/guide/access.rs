//! A user with no more rights than it needs.

use std::time::Duration;

use crate::{
    Partition, RedisStore, RedisStoreBuilder,
    keys::keyspace::Keyspace,
    script::{call::Call, encoder::Encoder, text},
};
use redis::Value;
use tokio::time::timeout;
use tollgate_core::{
    Check, DAY, Key, Limiter, MAX_PERIOD, MINUTE, Outcome, Quota, Rule, RuleSet, Source, Step,
    store::Fingerprint,
};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    eventually::eventually,
    redis_client::{Integers as _, RedisClient},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The words of the guide that make the user.
fn line() -> &'static str {
    let page = include_str!("../../../guide/access.md");
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
    RedisStore::builder(&address, "shop", crate::Keys::plain())
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
    Ok(())
}

#[tokio::test]
async fn the_user_of_the_guide_may_do_all_that_a_store_does() {
    assert_eq!(works(&server_without("nothing")).await, Ok(()));
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
    assert!(!commands().is_empty());
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

/// The rights that the guide gives to measure the namespace.
#[cfg(feature = "metrics")]
fn measuring() -> Vec<&'static str> {
    let page = include_str!("../../../guide/access.md");
    let row = page
        .lines()
        .find(|line| line.contains("RedisStoreBuilder::measure_namespace"));
    let rights = row.and_then(|row| row.rsplit('`').nth(1));
    let rights = rights.expect("the page has the row").split(' ');
    rights.collect()
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn the_rights_of_the_guide_are_those_that_it_takes_to_measure_the_namespace() {
    let all = measuring();
    assert_eq!(all.len(), 3);
    let start = |rights: &[&str]| {
        let server = server_with(&format!(
            "{} {}",
            line(),
            rights.join(" ").replace("\\|", "|")
        ));
        let store = builder(&server, "").measure_namespace(100_000).connect();
        (server, store.expect("a runtime"))
    };
    let (server, _store) = start(&all);
    eventually("it is measured", || async {
        let size = RedisClient::connect(server.address()).say("EXISTS {shop}:size");
        (size == Value::Int(1)).then_some(())
    })
    .await;
    assert_eq!(refused(&server), Vec::<String>::new());
    for missing in &all {
        let others: Vec<_> = all.iter().copied().filter(|it| it != missing).collect();
        let (server, _store) = start(&others);
        // Redis 6.2 does not log the second word.
        let command = missing[1..].split('\\').next().expect("a word");
        eventually(&format!("{command} is refused"), || async {
            let refused = refused(&server);
            refused
                .iter()
                .any(|it| it.starts_with(command))
                .then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn windows_count_for_a_user_that_may_not_write_a_part_of_a_state() {
    let server = server_without("+setrange");
    let rules = RuleSet::new([
        Rule::new("fixed", Quota::fixed_window(3, 10 * DAY)),
        Rule::new("sliding", Quota::sliding_window(3, 10 * DAY)),
    ]);
    let rules = rules.expect("valid rules");
    let keyspace = Keyspace::new("shop", Partition::One).expect("letters");
    let encoder = Encoder::new(&rules, keyspace).expect("two rules");
    let mut connection = logged_in(&server);
    for rule in 0..2 {
        let mut left = Vec::new();
        for _ in 0..3 {
            let mut call = Call::new();
            let check = Check::new(rule, Fingerprint::from_bits(7), 1);
            assert!(call.acquire(&encoder, &[check]).is_some());
            let head = [&b"EVAL"[..], text::TEXT.as_bytes(), b"1"];
            let answer = connection.command(head.into_iter().chain(call.keys()).chain(call.args()));
            left.push(answer.integers()[2]);
        }
        assert_eq!(left, [2, 1, 0], "{rule}");
    }
}

#[tokio::test]
async fn a_user_without_read_permission_gets_a_clear_error() {
    let server = server_without("+get");
    let rules = RuleSet::new([Rule::new("api", Quota::gcra(60, MINUTE))]).expect("a valid rule");
    let keyspace = Keyspace::new("shop", Partition::One).expect("letters");
    let encoder = Encoder::new(&rules, keyspace).expect("one rule");
    let mut call = Call::new();
    let check = Check::new(0, Fingerprint::from_bits(7), 1);
    assert!(call.acquire(&encoder, &[check]).is_some());
    let mut connection = logged_in(&server);
    let head = [&b"EVAL"[..], text::TEXT.as_bytes(), b"1"];
    let answer = connection.command(head.into_iter().chain(call.keys()).chain(call.args()));
    assert_eq!(answer.integers()[1..], [-3, 4, 0]);
    // The server keeps which command it was, as the error says.
    let Value::Array(refused) = RedisClient::connect(server.address()).say("ACL LOG 1") else {
        panic!("a log is a list");
    };
    assert!(format!("{refused:?}").contains(&format!("{:?}", Value::BulkString(b"get".to_vec()))));
}

#[tokio::test]
async fn the_user_of_the_guide_may_touch_the_keys_of_each_partition() {
    let server = server_with(line());
    for partition in [
        Partition::Key,
        Partition::One,
        Partition::ByRule("api".into()),
    ] {
        assert_eq!(
            works_with(builder(&server, "").partition(partition)).await,
            Ok(())
        );
    }
}

/// A store in another namespace, with all that it writes on a server.
async fn other_namespace(server: &RedisServer, namespace: &str, partition: Partition) {
    let address = format!("redis://{}", server.address());
    let store = RedisStore::builder(address, namespace, crate::Keys::plain())
        .partition(partition)
        .connect()
        .expect("a runtime");
    let rules = ["tenant", "api"].map(|name| Rule::new(name, Quota::fixed_window(2, MAX_PERIOD)));
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let key = Key::of("client");
    let checks = ["tenant", "api"].map(|name| limiter.check(name, &key).expect("it is there"));
    let connection = std::cell::RefCell::new(RedisClient::connect(server.address()));
    eventually("everything is written", || {
        let decision = limiter.acquire(&checks);
        let kinds = ["api", "instances", "quotas"];
        let pattern = |kind: &str| format!("KEYS *{namespace}*:{kind}*");
        let all = kinds
            .iter()
            .all(|kind| connection.borrow_mut().say(&pattern(kind)) != Value::Array(vec![]));
        async move {
            let _ = decision.await;
            all.then_some(())
        }
    })
    .await;
}

#[tokio::test]
async fn the_user_of_the_guide_may_touch_no_key_of_a_namespace_that_begins_like_its_own() {
    let server = server_with(line());
    let (mut all, mut user) = (RedisClient::connect(server.address()), logged_in(&server));
    let partitions = [
        Partition::One,
        Partition::Key,
        Partition::ByRule("tenant".into()),
    ];
    for (place, partition) in partitions.into_iter().enumerate() {
        for namespace in ["shop:eu", "shop:", "shop:probe", "shop:instances"] {
            let namespace = format!("{namespace}{place}");
            other_namespace(&server, &namespace, partition.clone()).await;
        }
    }
    let Value::Array(keys) = all.say("KEYS *") else {
        panic!("keys are a list");
    };
    assert!(keys.len() >= 12 * 4, "{keys:?}");
    for key in keys {
        let Value::BulkString(key) = key else {
            panic!("a key is a text");
        };
        for command in [&b"GET"[..], b"DEL"] {
            let answer = user.command([command, &key]);
            assert!(
                matches!(&answer, Value::ServerError(error) if error.code() == "NOPERM"),
                "{}: {answer:?}",
                key.escape_ascii()
            );
        }
        // What the guide gave once.
        assert!(key.starts_with(b"shop:") || key.starts_with(b"{shop:"));
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

#[tokio::test]
async fn the_user_of_the_guide_may_touch_no_other_key() {
    let server = server_without("nothing");
    let mut connection = logged_in(&server);
    for command in [
        "GET other",
        "KEYS *",
        "FLUSHALL",
        "CONFIG GET maxmemory",
        "ACL LIST",
    ] {
        let answer = connection.say(command);
        assert!(
            matches!(&answer, Value::ServerError(error) if error.code() == "NOPERM"),
            "{command}: {answer:?}"
        );
    }
}
