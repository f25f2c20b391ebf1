//! What one call carries.

use crate::script::args::ScriptCall;
use tollgate_core::{
    Check, MINUTE, Quota, Rule, RuleSet,
    algorithm::Taken,
    store::{Fingerprint, Hold, Settlement},
};
use tollgate_prefilter::{LeaseQuery, LeaseTerms, ReturnedLease};

use crate::{
    connection::command::Command,
    internal_tests::script::Subject,
    keys::{
        keys::{Keys, Secret},
        keyspace::{Keyspace, Partition},
    },
    script::encoder::{Encoder, SLOT_TERM},
};

type Operation = fn(&mut ScriptCall, &Encoder) -> bool;

const QUOTA: Quota = Quota::gcra(100, MINUTE);

/// Each adds itself to a call, if there is room.
const OPERATIONS: [Operation; 7] = [
    |call, encoder| call.acquire(encoder, &[Subject::check(0, 1)]).is_some(),
    |call, encoder| call.peek(encoder, &[Subject::check(0, 1)]).is_some(),
    |call, encoder| {
        let receipt = Hold::of_store(Subject::check(0, 1), Taken::new(1, 2));
        call.settle(encoder, &receipt, Settlement::Cancel)
    },
    |call, encoder| call.reset(encoder, 0, Subject::check(0, 1).key()),
    |call, encoder| {
        let returned = ReturnedLease {
            size: 2,
            left: 1,
            generation: 7,
        };
        let place = call.close(encoder, &Subject::check(0, 1), returned);
        place.is_some()
    },
    |call, encoder| {
        let terms = LeaseTerms::new(&QUOTA, 500).expect("it is granted");
        let query = LeaseQuery {
            tracked: 2,
            ..LeaseQuery::default()
        };
        let place = call.grant(encoder, &Subject::check(0, 1), &query, &terms);
        place.is_some()
    },
    |call, encoder| call.debit(encoder, &Subject::check(0, 1)).is_some(),
];

fn encoder() -> Encoder {
    let rules = RuleSet::new([Rule::new("api", QUOTA)]).expect("a valid rule");
    let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
    Encoder::new(&rules, keyspace).expect("no plans")
}

#[test]
fn a_call_that_is_full_takes_no_operation_and_stays_as_it_is() {
    let (encoder, mut call) = (encoder(), ScriptCall::new());
    while call.debit(&encoder, &Subject::check(0, 1)).is_some() {}
    // Each may have an answer for its block as well.
    let full = call.checks();
    assert!(full > 65_500, "{full}");
    for (place, operation) in OPERATIONS.into_iter().enumerate() {
        assert!(!operation(&mut call, &encoder), "{place}");
        assert_eq!(call.checks(), full, "{place}");
    }
}

#[test]
fn a_call_knows_the_rules_of_every_operation() {
    let encoder = encoder();
    let mut first = ScriptCall::new();
    assert!(OPERATIONS[0](&mut first, &encoder));
    let rules = first.command.rules;
    assert_eq!(rules.count_ones(), 1);
    for (place, operation) in OPERATIONS.into_iter().enumerate() {
        let mut call = ScriptCall::new();
        assert!(operation(&mut call, &encoder), "{place}");
        assert_eq!(call.command.rules, rules, "{place}");
    }
}

/// Requests of clients from this number on, with all that a check may say of other keys: a second name, an overflow bucket, since when
/// states are there, and a balance.
fn requests(call: &mut ScriptCall, encoder: &Encoder, client: u128) {
    let check = |rule, client: u128| Check::new(rule, Fingerprint::from_bits(client), 2);
    let with_id = |check: Check| check.with_id(Fingerprint::from_bits(77));
    let may_not = |_| false;
    let checks = [
        check(0, client),
        check(1, client),
        with_id(check(2, client)),
    ];
    let layout = call.acquire_within(encoder, &checks, 7, may_not);
    assert!(layout.is_some());
    for rule in 0..3 {
        let hold = Hold::of_store(check(rule, client + 1), Taken::new(1, 2));
        assert!(call.settle(encoder, &hold, Settlement::Charge(1)));
        assert!(call.settle(encoder, &hold, Settlement::Cancel));
    }
}

#[test]
fn calls_that_travel_together_are_what_one_call_of_all_their_requests_is() {
    let rules = [
        Rule::new("window", Quota::fixed_window(10, MINUTE)),
        Rule::new("queue", QUOTA).wait(MINUTE),
        (Rule::new("paid", Quota::fixed_window(10, MINUTE)).idempotent(MINUTE))
            .credits()
            .durable(|_| "account".to_owned()),
    ];
    let rules = RuleSet::new(rules).expect("valid rules");
    let secret = |byte| Secret::from_bytes([byte; 32]).expect("32 bytes");
    let keys = Keys::hashed(secret(1)).next(secret(2)).expect("another");
    let keyspace = Keyspace::new("tg", Partition::One).expect("letters");
    let is_capped = |rule: &Rule| rule.name() == "window";
    let keyspace = keyspace.with_keys(keys);
    let encoder = Encoder::with_caps(&rules, keyspace, SLOT_TERM, false, is_capped);
    let encoder = encoder.expect("no plans");
    let clients = [1, 11, 21];
    let commands = clients.map(|client| {
        let mut call = ScriptCall::new();
        requests(&mut call, &encoder, client);
        call.command
    });
    let mut all = ScriptCall::new();
    for client in clients {
        requests(&mut all, &encoder, client);
    }
    let together = Command::written(&commands);
    assert_eq!(together, Command::written(&[all.command]));
}
