//! A change of secrets: processes of all its steps share one budget. Random histories in the middle of a change are in `parity`.

use tollgate_core::{Check, Key, KeyBuf, Quota, Rule, RuleSet, SECOND};

use crate::{
    Keys,
    internal_tests::keys::{MARGIN, NOW, secret, server::Server},
    keys::keyspace::{Keyspace, Partition},
    script::{args::ScriptCall, encoder::Encoder},
};

#[test]
fn one_budget_is_shared_throughout_a_change_of_secrets_and_has_one_name_at_a_time() {
    let rules = RuleSet::new([Rule::new("rule", Quota::fixed_window(10, 7 * SECOND))]);
    let rules = rules.expect("a valid rule");
    let mut server = Server::start();
    let process = |keys: Keys| {
        let keyspace = Keyspace::new("shop", Partition::One).expect("letters");
        Encoder::new(&rules, keyspace.with_keys(keys)).expect("few plans")
    };
    let (old, new) = (Keys::hashed(secret(1)), Keys::hashed(secret(2)));
    let before = process(old.clone());
    let first = process(old.next(secret(2)).expect("another"));
    let second = process(new.clone().previous(secret(1)).expect("another"));
    let third = process(new);
    let key = KeyBuf::from(Key::of("client"));
    // What is left, and the name of the state.
    let mut take = |process: &Encoder, cost| {
        let mut call = ScriptCall::at(NOW, MARGIN);
        let checks = [Check::new(0, process.fingerprint(0, &key), cost)];
        let layout = call.acquire(process, &checks).expect("there is room");
        let decision = server.send(&call).decision(&layout, &checks, &rules);
        let names = server.names();
        assert_eq!(names.len(), 1);
        (decision.verdicts()[0].remaining(), names)
    };
    let (_, old_name) = take(&before, 1);
    for (left, process) in [(8, &first), (7, &before), (6, &first)] {
        assert_eq!(take(process, 1), (left, old_name.clone()));
    }
    // A denial writes nothing, and moves nothing.
    assert_eq!(take(&second, 7), (6, old_name.clone()));
    let (left, new_name) = take(&second, 1);
    assert_eq!(left, 5);
    assert_ne!(old_name, new_name);
    // Who holds to the old secret writes it where it is now.
    for (left, process) in [(4, &first), (3, &second), (2, &third), (1, &second)] {
        assert_eq!(take(process, 1), (left, new_name.clone()));
    }
}
