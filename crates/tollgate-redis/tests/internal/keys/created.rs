//! Which checks have created keys, as replies say and as a server has them.

use std::collections::{BTreeMap, HashSet};

use tollgate_core::{Check, HOUR, Key, KeyBuf, Quota, Rule, RuleSet};
use tollgate_test_servers::numbers::Numbers;

use crate::{
    Keys,
    internal_tests::keys::{MARGIN, NOW, secret, server::Server},
    keys::keyspace::{Keyspace, Partition},
    script::{args::ScriptCall, encoder::Encoder, reply::NewKey},
};

fn encoder(rules: &RuleSet) -> Encoder {
    let keyspace = Keyspace::new("shop", Partition::One).expect("letters");
    let keyspace = keyspace.with_keys(Keys::hashed(secret(1)));
    Encoder::new(rules, keyspace).expect("few plans")
}

fn client(number: u64) -> KeyBuf {
    Key::of([number.to_le_bytes()]).into()
}

/// How many of these names are of each rule.
fn by_rule<'a>(names: impl Iterator<Item = &'a String>) -> BTreeMap<String, usize> {
    let mut by_rule = BTreeMap::new();
    for name in names {
        let rule = name.split(':').nth(2).expect("a rule");
        *by_rule.entry(rule.to_owned()).or_default() += 1;
    }
    by_rule
}

#[test]
fn a_reply_says_which_checks_have_created_keys() {
    let rules = RuleSet::new([
        Rule::new("bucket", Quota::gcra(7, HOUR).burst(5)).plan("gold", Quota::gcra(9, HOUR)),
        Rule::new("fixed", Quota::fixed_window(4, HOUR))
            .threshold("mark", Quota::fixed_window(2, HOUR)),
        Rule::new("sliding", Quota::sliding_window(6, HOUR)),
        Rule::new("log", Quota::sliding_log(4, HOUR)),
        Rule::new("ring", Quota::sliding_buckets(5, HOUR)),
        Rule::new("shadow", Quota::fixed_window(3, HOUR)).shadow(),
        Rule::new("off", Quota::fixed_window(2, HOUR)).off(),
    ])
    .expect("valid rules");
    let encoder = encoder(&rules);
    let all = rules.rules().len() as u64;
    let mut denied = 0;
    for seed in 1..15 {
        let mut numbers = Numbers(seed);
        let mut server = Server::start();
        let mut before = HashSet::new();
        // No time passes: nothing expires, and no state becomes a fresh one.
        for _ in 0..150 {
            let checks: Vec<_> = (0..numbers.of(&[1, 1, 2, 3, 4]))
                .map(|_| {
                    let rule = numbers.below(all) as u16;
                    let key = encoder.fingerprint(rule, &client(numbers.below(9)));
                    let plan = u16::from(rule == 0 && seed % 2 == 0);
                    Check::new(rule, key, numbers.below(4)).with_plan(plan)
                })
                .collect();
            let mut call = ScriptCall::at(NOW, MARGIN);
            let layout = call.acquire(&encoder, &checks).expect("there is room");
            if call.is_empty() {
                continue;
            }
            let reply = server.send(&call);
            let decision = reply.decision(&layout, &checks, &rules);
            denied += usize::from(!decision.is_allowed());
            let names: HashSet<_> = server.names().into_iter().collect();
            let is_denied = !decision.is_allowed();
            let mut by_reply = BTreeMap::new();
            for (index, sent) in layout.sent() {
                let new_key = reply.new_key(sent, &checks[index], &rules, is_denied);
                if new_key == Some(NewKey::Made) {
                    let rule = rules.rules()[usize::from(sent.rule)].name();
                    *by_reply.entry(rule.to_owned()).or_default() += 1;
                }
            }
            let created = by_rule(names.difference(&before));
            assert_eq!(by_reply, created, "seed {seed}: {checks:?}: {reply:?}");
            before = names;
        }
        assert!(before.len() > 20);
    }
    assert!(denied > 100);
}
