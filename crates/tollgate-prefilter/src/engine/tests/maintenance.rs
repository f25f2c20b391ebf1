//! What is sent without a request, and what the events say of it.

use std::time::Duration;

use smallvec::smallvec;
use tollgate_core::{Check, Consistency, MINUTE, Quota, Rule, SECOND};

use crate::{
    NoReply, Places, Query,
    engine::{
        begin::MAX_VISITS,
        tests::subject::{
            BY_KEY, EVENTUAL, LEASED, Subject, done, fits, key, leased_bucket, one, tracked,
        },
    },
};

/// Counted locally, a thousand a second.
fn eventual() -> Subject {
    let subject = Subject::new(Quota::fixed_window(1_000, SECOND), EVENTUAL);
    subject.known(fits(900, 1_000_000), None);
    subject
}

/// What is due, sent.
fn poll(subject: &Subject) -> Vec<Query> {
    let mut queries = subject.rules.poll_maintenance(subject.now());
    for query in &mut queries {
        subject.fill(query);
    }
    queries
}

fn units(query: &Query) -> Vec<u64> {
    query.reports.iter().map(Check::cost).collect()
}

#[test]
fn a_report_that_was_not_carried_out_goes_again_after_its_interval() {
    let subject = eventual();
    assert!(subject.is_local(&[one().with_cost(3)]));
    let mut refusals = [
        Err(NoReply::NotSent),
        Err(NoReply::NothingToSend),
        Ok(Err(NoReply::NotSent)),
    ]
    .into_iter();
    loop {
        subject.advance(99_999);
        assert!(poll(&subject).is_empty());
        subject.advance(1);
        let query = poll(&subject).pop().expect("a report is due");
        assert_eq!(units(&query), [3]);
        let reply = match refusals.next() {
            Some(Err(why)) => Err(why),
            Some(Ok(refused)) => {
                let mut reply = subject.reply(&query, fits(0, 0), None);
                reply.reports = smallvec![refused];
                Ok(reply)
            }
            None => Ok(subject.reply(&query, fits(897, 1_000_000), None)),
        };
        let is_over = matches!(&reply, Ok(it) if it.reports[..] != [Err(NoReply::NotSent)]);
        drop(done(query.finish(reply, subject.now())));
        if is_over {
            break;
        }
    }
    subject.advance(100_000);
    assert!(poll(&subject).is_empty());
    assert!(subject.rules.is_reported());
}

#[test]
fn keys_of_one_place_are_reported_together_up_to_a_number_and_those_of_others_apart() {
    let quota = Quota::fixed_window(1_000, SECOND);
    let rule = || Rule::new("rule", quota).consistency(EVENTUAL);
    let sizes = |subject: &Subject, keys: u128| {
        for check in (0..keys).map(|number| Check::new(0, key(number), 1)) {
            let _ = subject.decided(&[check], fits(900, 1_000_000));
            assert!(subject.is_local(&[check]));
        }
        subject.advance(100_000);
        let sizes = poll(subject)
            .iter()
            .map(|query| query.reports.len())
            .collect();
        let sizes: Vec<_> = sizes;
        sizes
    };
    assert_eq!(
        sizes(&Subject::on(Places::default(), [rule()]), 40),
        [32, 8]
    );
    assert_eq!(sizes(&Subject::on(BY_KEY, [rule()]), 3), [1, 1, 1]);
}

#[test]
fn many_leases_are_looked_through_in_parts_and_each_once_a_second() {
    const KEYS: usize = 2 * MAX_VISITS + 1;
    let subject = leased_bucket(tracked(10, 7));
    for number in 1..KEYS as u128 {
        let check = Check::new(0, key(1_000 + number), 1);
        subject.known_of(check, fits(5_000, 500_000), tracked(10, 7));
    }
    let usage = || subject.engine.usage(subject.now());
    assert_eq!(usage().leased_keys, KEYS as u64);
    // All are used, so that their return saves a call.
    assert!(subject.is_local(&[one()]));
    for number in 1..KEYS as u128 {
        assert!(subject.is_local(&[Check::new(0, key(1_000 + number), 1)]));
    }
    // None is idle yet.
    for is_more in [true, true, false, false] {
        assert!(poll(&subject).is_empty());
        assert_eq!(subject.rules.is_looking_through_leases(), is_more);
    }
    subject.advance(2_000_000);
    let parts = [
        (MAX_VISITS, true),
        (MAX_VISITS, true),
        (1, false),
        (0, false),
    ];
    for (returned, is_more) in parts {
        assert_eq!(returned_by_poll(&subject), returned);
        assert_eq!(subject.rules.is_looking_through_leases(), is_more);
    }
    assert_eq!(usage().units_on_lease, 0);
}

/// How many leases a poll returns.
fn returned_by_poll(subject: &Subject) -> usize {
    poll(subject).iter().map(|query| query.leases.len()).sum()
}

#[test]
fn a_poll_looks_at_so_many_leases_of_all_rules_together() {
    let quota = Quota::gcra(6_000, MINUTE);
    let subject = Subject::of(["a", "b"].map(|it| Rule::new(it, quota).consistency(LEASED)));
    for number in 0..2 * MAX_VISITS as u128 {
        let check = Check::new((number % 2) as u16, key(number), 1);
        subject.known_of(check, fits(5_000, 500_000), tracked(10, 7));
        assert!(subject.is_local(&[check]));
    }
    (0..2).for_each(|_| assert!(poll(&subject).is_empty()));
    subject.advance(2_000_000);
    for returned in [MAX_VISITS, MAX_VISITS, 0] {
        assert_eq!(returned_by_poll(&subject), returned);
    }
}

#[test]
fn a_lease_is_looked_at_also_of_a_key_that_had_one_under_another_plan() {
    let quota = Quota::gcra(6_000, MINUTE);
    let rule = Rule::new("rule", quota).plan("more", Quota::gcra(12_000, MINUTE));
    let subject = Subject::of([rule.consistency(LEASED)]);
    let others = (0..MAX_VISITS as u128).map(|number| Check::new(0, key(1_000 + number), 1));
    for check in others.chain([one()]) {
        subject.known_of(check, fits(5_000, 500_000), tracked(10, 7));
    }
    // The leases have run out, and a poll does not get to that of the last key.
    subject.advance(60_000_000);
    let other_plan = one().with_plan(1);
    let _ = subject.decided(&[other_plan], fits(11_000, 500_000));
    assert!(poll(&subject).is_empty() && subject.rules.is_looking_through_leases());
    subject.known_of(other_plan, fits(11_000, 500_000), tracked(10, 8));
    assert!(subject.is_local(&[other_plan]));
    let look_at_all = || -> usize {
        subject.advance(2_000_000);
        (0..2).map(|_| returned_by_poll(&subject)).sum()
    };
    assert_eq!([look_at_all(), look_at_all()], [0, 1]);
}

#[test]
fn maintenance_is_as_frequent_as_the_most_frequent_rule_has_it() {
    let pause = |rules: &[Consistency]| {
        let quota = Quota::fixed_window(1_000, SECOND);
        let rules = (0..).zip(rules);
        let rules =
            rules.map(|(index, how)| Rule::new(["a", "b", "c"][index], quota).consistency(*how));
        Subject::of(rules).rules.maintenance_interval()
    };
    let every = |interval| Consistency::Eventual {
        interval,
        max_unreported: 10,
    };
    assert_eq!(pause(&[Consistency::Exact]), None);
    assert_eq!(pause(&[LEASED]), Some(SECOND));
    // Twice in each interval, within bounds.
    let millis = Duration::from_millis;
    for (interval, expected) in [(1, 5), (10, 5), (100, 50), (2_000, 1_000), (9_000, 1_000)] {
        let pause = pause(&[every(millis(interval))]);
        assert_eq!(pause, Some(millis(expected)), "{interval}");
    }
    let of_several = pause(&[LEASED, every(millis(100)), Consistency::Exact]);
    assert_eq!(of_several, Some(millis(50)));
}
