//! What one call carries.

use crate::script::call::ScriptCall;
use tollgate_core::{
    MINUTE, Quota, Rule, RuleSet,
    algorithm::Taken,
    store::{Hold, Settlement},
};
use tollgate_prefilter::{LeaseQuery, LeaseTerms, ReturnedLease};

use crate::{
    internal_tests::script::Subject,
    keys::keyspace::{Keyspace, Partition},
    script::encoder::Encoder,
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
    assert_eq!(first.rules, 0);
    assert!(OPERATIONS[0](&mut first, &encoder));
    assert_eq!(first.rules.count_ones(), 1);
    for (place, operation) in OPERATIONS.into_iter().enumerate() {
        let mut call = ScriptCall::new();
        assert!(operation(&mut call, &encoder), "{place}");
        assert_eq!(call.rules, first.rules, "{place}");
    }
}
