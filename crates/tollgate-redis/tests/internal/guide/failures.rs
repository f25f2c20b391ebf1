//! What failures cost, where it is not seen at the store.

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder},
};
use redis::Value;
use tollgate_core::{Check, HOUR, Quota, Rule, RuleSet, store::Fingerprint};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    redis_client::{Integers as _, RedisClient},
};

use crate::internal_tests::guide::{load_script, run};

#[test]
fn a_server_without_memory_refuses_takes_and_still_answers_denials_and_looks() {
    let rules = RuleSet::new([Rule::new("api", Quota::gcra(1, HOUR))]);
    let encoder = Keyspace::new("shop", Partition::Key)
        .and_then(|keyspace| Encoder::new(&rules?, keyspace))
        .expect("a valid rule");
    let check = |client| Check::new(0, Fingerprint::from_bits(client), 1);
    let mut take = Call::new();
    assert!(take.acquire(&encoder, &[check(1)]).is_some());
    let mut other = Call::new();
    assert!(other.acquire(&encoder, &[check(2)]).is_some());
    let mut look = Call::new();
    assert!(look.peek(&encoder, &[check(2)]).is_some());

    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]);
    let mut connection = RedisClient::connect(server.address());
    load_script(&mut connection);
    // It fits, and for an hour no other does.
    let fits = |value: Value| value.integers()[1] == -4 - 3_600_000_000;
    assert!(fits(run(&mut connection, &take)));
    connection.say("CONFIG SET maxmemory 1");

    assert!(run(&mut connection, &take).integers()[1] > 0);
    assert!(fits(run(&mut connection, &look)));
    // There is no memory for it.
    assert_eq!(run(&mut connection, &other).integers()[1..4], [-3, 1, 0]);
    // Nothing was taken.
    connection.say("CONFIG SET maxmemory 0");
    assert!(fits(run(&mut connection, &other)));
}
