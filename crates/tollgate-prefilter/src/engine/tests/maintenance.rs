//! What is sent without a request, and what the events say of it.

use std::time::Duration;

use smallvec::smallvec;
use tollgate_core::{Check, Consistency, Quota, Rule, SECOND};

use crate::{
    EngineCounts, GrantReply, LeaseReply, NoReply, Places, Query, ReportReply, ReturnedLease,
    engine::{
        maintenance::MAX_VISITS,
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
    query.reports().iter().map(Check::cost).collect()
}

#[test]
fn a_report_that_was_not_carried_out_goes_again_after_its_interval() {
    let subject = eventual();
    assert!(subject.is_local(&[one().with_cost(3)]));
    let mut refusals = [
        Err(NoReply::NotRun),
        Err(NoReply::NothingToSend),
        Ok(ReportReply::Refused),
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
        let is_over = matches!(&reply, Ok(it) if it.reports[..] != [ReportReply::Refused]);
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
            for _ in 0..2 {
                let _ = subject.decided(&[check], fits(900, 1_000_000));
            }
            assert!(subject.is_local(&[check]));
        }
        subject.advance(100_000);
        let sizes = poll(subject)
            .iter()
            .map(|query| query.reports().len())
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
fn leases_are_looked_through_once_a_second_and_those_go_back_that_are_idle() {
    let subject = leased_bucket(tracked(10, 7));
    assert!(subject.is_local(&[one()]));
    assert!(poll(&subject).is_empty());
    // Idle for long enough, but it is not looked at.
    subject.advance(1_999_999);
    assert!(poll(&subject).is_empty());
    subject.advance(999_999);
    assert!(poll(&subject).is_empty());
    subject.advance(1);
    let query = poll(&subject).pop().expect("it goes back");
    let returned: Vec<_> = query.leases().iter().map(|it| it.query.returned).collect();
    assert_eq!(
        returned,
        [Some(ReturnedLease {
            size: 10,
            left: 9,
            generation: 7
        })]
    );
    drop(subject.finish(query, fits(5_000, 500_000), None));
    assert_eq!(subject.engine.usage(subject.now()).units_on_lease, 0);
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
        let queries = poll(&subject);
        let leases = queries.iter().map(|query| query.leases().len());
        assert_eq!(leases.sum::<usize>(), returned);
        assert_eq!(subject.rules.is_looking_through_leases(), is_more);
    }
    assert_eq!(usage().units_on_lease, 0);
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

/// What was counted since `before`, which it is set to.
fn since(subject: &Subject, before: &mut EngineCounts) -> ([u64; 4], [u64; 3], u64) {
    let now = subject.engine.counts();
    let leases = [0, 1, 2, 3].map(|of| now.leases[of] - before.leases[of]);
    let reports = [0, 1, 2].map(|of| now.reports[of] - before.reports[of]);
    let lost = now.units_lost - before.units_lost;
    *before = now;
    (leases, reports, lost)
}

#[test]
fn it_is_counted_what_becomes_of_leases() {
    let subject = leased_bucket(tracked(10, 7));
    let mut before = EngineCounts::default();
    let mut counted = || since(&subject, &mut before).0;
    assert_eq!(counted(), [1, 1, 0, 0]);
    let large = [one().with_cost(20)];
    let ask = || {
        subject.advance(100_000);
        subject.query(&large)
    };
    drop(subject.finish(ask(), fits(5_000, 500_000), None));
    assert_eq!(counted(), [1, 0, 1, 0]);
    // Whether one was granted is not known.
    drop(done(ask().finish(Err(NoReply::Unknown), subject.now())));
    assert_eq!(counted(), [1, 0, 0, 1]);
    drop(subject.finish(ask(), fits(5_000, 500_000), None));
    assert_eq!(counted(), [0; 4]);
    let query = ask();
    let mut reply = subject.reply(&query, fits(5_000, 500_000), None);
    let lost = LeaseReply {
        is_refused: false,
        grant: GrantReply::Lost,
    };
    reply.leases = smallvec![lost];
    drop(done(query.finish(Ok(reply), subject.now())));
    assert_eq!(counted(), [1, 0, 0, 1]);
    drop(done(ask().finish(Err(NoReply::NotRun), subject.now())));
    assert_eq!(counted(), [1, 0, 0, 0]);
}

#[test]
fn it_is_counted_what_becomes_of_reports() {
    let subject = eventual();
    let mut before = subject.engine.counts();
    let mut counted = || {
        let (_, reports, lost) = since(&subject, &mut before);
        (reports, lost)
    };
    let report = || {
        subject.advance(100_000);
        poll(&subject).pop().expect("a report is due")
    };
    assert!(subject.is_local(&[one().with_cost(3)]));
    let query = report();
    assert_eq!(counted(), ([1, 0, 0], 0));
    drop(done(query.finish(Err(NoReply::NotRun), subject.now())));
    assert_eq!(counted(), ([0, 1, 0], 0));
    let query = report();
    drop(done(query.finish(Err(NoReply::Unknown), subject.now())));
    assert_eq!(counted(), ([1, 0, 1], 3));
    // The store says so, or the query is dropped.
    for is_dropped in [false, true] {
        let _ = subject.decided(&[one()], fits(900, 1_000_000));
        assert!(subject.is_local(&[one().with_cost(3)]));
        let query = report();
        if is_dropped {
            drop(query);
        } else {
            let mut reply = subject.reply(&query, fits(900, 0), None);
            reply.reports = smallvec![ReportReply::Unknown];
            drop(done(query.finish(Ok(reply), subject.now())));
        }
        assert_eq!(counted(), ([1, 0, 1], 3));
    }
}
