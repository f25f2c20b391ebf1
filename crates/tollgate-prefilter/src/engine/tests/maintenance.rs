//! What is sent without a request, and what the events say of it.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::Duration,
};

use tollgate_core::{Check, Consistency, MINUTE, Quota, Rule, SECOND};

use crate::{
    BoundRules, Engine, EngineEvents, EngineOptions, GrantReply, LeaseEvent, LeaseReply, NoReply,
    Query, ReportEvent, ReportReply, ReturnedLease,
    engine::{
        maintenance::MAX_VISITS,
        tests::subject::{
            Anywhere, ByKey, EVENTUAL, LEASED, Subject, done, fits, key, leased_bucket, one,
            rule_set, tracked,
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
        query.send(subject.now(), |_| ());
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
            Some(Ok(refused)) => Ok(subject
                .reply(&query, fits(0, 0), None)
                .with_reports([refused])),
            None => Ok(subject.reply(&query, fits(897, 1_000_000), None)),
        };
        let is_over = matches!(&reply, Ok(it) if it.reports() != [ReportReply::Refused]);
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
        sizes(&Subject::on(Box::new(Anywhere), [rule()]), 40),
        [32, 8]
    );
    assert_eq!(sizes(&Subject::on(Box::new(ByKey), [rule()]), 3), [1, 1, 1]);
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

/// Notes the events in words.
#[derive(Clone, Debug, Default)]
struct Noted(Arc<Mutex<Vec<String>>>);

impl Noted {
    fn note(&self, what: String) {
        self.0.lock().expect("no panic").push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl EngineEvents for Noted {
    fn lease(&self, event: LeaseEvent) {
        self.note(format!("lease {event:?}"));
    }

    fn reports(&self, event: ReportEvent, count: usize) {
        self.note(format!("{count} reports {event:?}"));
    }

    fn units_lost(&self, units: u64) {
        self.note(format!("{units} units lost"));
    }
}

fn noted(quota: Quota, consistency: Consistency) -> (Subject, Noted) {
    let noted = Noted::default();
    let engine = Engine::new(EngineOptions::default(), Box::new(noted.clone()));
    let rules = rule_set([Rule::new("rule", quota).consistency(consistency)]);
    let subject = Subject {
        rules: BoundRules::new(&engine, rules, Box::new(Anywhere)),
        engine,
        now: Cell::new(1_700_000_000_000_000),
    };
    (subject, noted)
}

#[test]
fn the_events_say_what_becomes_of_leases() {
    let (subject, events) = noted(Quota::gcra(6_000, MINUTE), LEASED);
    subject.known(fits(5_000, 500_000), tracked(10, 7));
    assert_eq!(events.take(), ["lease Requested", "lease Granted"]);
    let large = [one().with_cost(20)];
    let ask = || {
        subject.advance(100_000);
        subject.query(&large)
    };
    drop(subject.finish(ask(), fits(5_000, 500_000), None));
    assert_eq!(events.take(), ["lease Requested", "lease Returned"]);
    // Whether one was granted is not known.
    drop(done(ask().finish(Err(NoReply::Unknown), subject.now())));
    assert_eq!(events.take(), ["lease Requested", "lease Lost"]);
    drop(subject.finish(ask(), fits(5_000, 500_000), None));
    assert_eq!(events.take(), [""; 0]);
    let query = ask();
    let reply = subject.reply(&query, fits(5_000, 500_000), None);
    let lost = LeaseReply {
        is_refused: false,
        grant: GrantReply::Lost,
    };
    let reply = reply.with_leases([lost]);
    drop(done(query.finish(Ok(reply), subject.now())));
    assert_eq!(events.take(), ["lease Requested", "lease Lost"]);
    drop(done(ask().finish(Err(NoReply::NotRun), subject.now())));
    assert_eq!(events.take(), ["lease Requested"]);
}

#[test]
fn the_events_say_what_becomes_of_reports() {
    let (subject, events) = noted(Quota::fixed_window(1_000, SECOND), EVENTUAL);
    subject.known(fits(900, 1_000_000), None);
    assert_eq!(events.take(), [""; 0]);
    let report = |subject: &Subject| {
        subject.advance(100_000);
        poll(subject).pop().expect("a report is due")
    };
    assert!(subject.is_local(&[one().with_cost(3)]));
    let query = report(&subject);
    assert_eq!(events.take(), ["1 reports Sent"]);
    drop(done(query.finish(Err(NoReply::NotRun), subject.now())));
    assert_eq!(events.take(), ["1 reports Kept"]);
    let query = report(&subject);
    drop(done(query.finish(Err(NoReply::Unknown), subject.now())));
    let lost = ["1 reports Sent", "1 reports Lost", "3 units lost"];
    assert_eq!(events.take(), lost);
    // The store says so, or the query is dropped.
    for is_dropped in [false, true] {
        let _ = subject.decided(&[one()], fits(900, 1_000_000));
        assert!(subject.is_local(&[one().with_cost(3)]));
        let query = report(&subject);
        if is_dropped {
            drop(query);
        } else {
            let reply = subject.reply(&query, fits(900, 0), None);
            let reply = reply.with_reports([ReportReply::Unknown]);
            drop(done(query.finish(Ok(reply), subject.now())));
        }
        assert_eq!(events.take(), lost);
    }
}
