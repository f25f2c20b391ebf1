//! What can be read in the names of states.

use std::sync::Arc;

use crate::{
    Keys,
    keys::keyspace::{Keyspace, Partition},
    script::{
        args::ScriptCall,
        encoder::{Encoder, SLOT_TERM},
    },
};
use tollgate_core::{Check, KeyBuf, MINUTE, Outcome, PartKind, Quota, Rule, RuleSet};

use crate::internal_tests::keys::{MARGIN, NOW, secret, server::Server};

fn encoder(namespace: &str, keys: Keys) -> (Arc<RuleSet>, Encoder) {
    let rules = RuleSet::new([Rule::new("api", Quota::fixed_window(3, MINUTE))]);
    let rules = Arc::new(rules.expect("a valid rule"));
    let keyspace = Keyspace::new(namespace, Partition::One).expect("letters");
    let encoder = Encoder::new(&rules, keyspace.with_keys(keys)).expect("few plans");
    (rules, encoder)
}

fn address() -> KeyBuf {
    let mut key = KeyBuf::new();
    key.push(PartKind::ADDRESS, [4, 32, 192, 0, 2, 1]);
    key
}

/// One unit for this key, and what is left.
fn take(server: &mut Server, (rules, encoder): &(Arc<RuleSet>, Encoder), key: &KeyBuf) -> u64 {
    let checks = [Check::new(0, encoder.fingerprint(0, key), 1)];
    let mut call = ScriptCall::at(NOW, MARGIN);
    let layout = call.acquire(encoder, &checks).expect("there is room");
    let reply = server.send(&call);
    reply.decision(&layout, &checks, rules).verdicts()[0].remaining()
}

#[test]
fn a_name_shows_nothing_of_a_client() {
    let mut server = Server::start();
    let shop = encoder("shop", Keys::hashed(secret(1)));
    take(&mut server, &shop, &address());
    let name = server.names().remove(0);
    assert!(
        name.starts_with("{shop}:") && name.ends_with(":api:f1"),
        "{name}"
    );
    let client = &name["{shop}:".len()..name.len() - ":api:f1".len()];
    assert_eq!(client.len(), 22);
    // Another secret makes another name, so addresses cannot be tried without the secret.
    let other = encoder("shop", Keys::hashed(secret(2)));
    assert_eq!(take(&mut server, &other, &address()), 2);
    assert_eq!(server.names().len(), 2);
}

#[test]
fn a_value_that_is_not_ours_under_either_name_fails_the_check_and_stays() {
    let mut server = Server::start();
    let first = Keys::hashed(secret(1)).next(secret(2)).expect("another");
    let second = Keys::hashed(secret(2))
        .previous(secret(1))
        .expect("another");
    for keys in [first, second] {
        let (rules, encoder) = encoder("shop", keys);
        let keyspace = encoder.keyspace.clone();
        let overflowing = Encoder::with_caps(&rules, keyspace, SLOT_TERM, false, |_| true);
        let overflowing = overflowing.expect("few plans");
        let checks = [Check::new(0, overflowing.fingerprint(0, &address()), 1)];
        let mut call = ScriptCall::at(NOW, MARGIN);
        let layout = call.acquire_within(&overflowing, &checks, u64::MAX, |_| false);
        let layout = layout.expect("there is room");
        // Two names of the client, two of the bucket of all.
        let names: Vec<Vec<u8>> = call.keys().map(<[u8]>::to_vec).collect();
        assert_eq!(names.len(), 4);
        for name in names {
            server.put_list(&name);
            let reply = server.send(&call);
            let decision = reply.decision(&layout, &checks, &rules);
            assert_eq!(decision.outcome(), Outcome::Failed);
            for (index, sent) in layout.sent() {
                assert_eq!(reply.new_key(sent, &checks[index], &rules, false), None);
            }
            assert_eq!(server.names().len(), 1);
            server.forget_everything();
        }
    }
}

#[test]
fn a_partition_by_a_rule_that_there_is_not_is_refused() {
    let rules = RuleSet::new([
        Rule::new("api", Quota::gcra(1, MINUTE)),
        Rule::new("trial", Quota::gcra(1, MINUTE)).shadow(),
    ]);
    let rules = rules.expect("valid rules");
    for name in ["tenant", "trial"] {
        let keyspace = Keyspace::new("shop", Partition::ByRule(name.into())).expect("letters");
        let error = Encoder::new(&rules, keyspace)
            .expect_err("not enforced")
            .to_string();
        assert!(
            error.contains(name) && error.contains("enforced rule of this name"),
            "{error}"
        );
    }
}
