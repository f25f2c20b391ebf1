//! Tests of what stands between what a process holds and what the store knows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_core::{
    Check, Consistency, Decision, Fingerprint, LeaseShare, MINUTE, ManualClock, Outcome, Quota,
    Retry, Rule, RuleSet, SECOND, Source, Verdict,
    algorithm::{Assessment, Taken},
    store::{Receipt, Settlement},
};
use tollgate_prefilter::Grant;

use crate::prefilter::{
    deny::DenyCache,
    filter::Prefilter,
    process_clock,
    split::{Answer, IndexSet},
    table_key::{TableKey, table_key_of},
};

const KEY: Fingerprint = Fingerprint::from_bits(7);

/// The store's clock is this far ahead of the process's.
const AHEAD: u64 = 12_345_678;

struct Subject {
    rules: RuleSet,
    clock: ManualClock,
    filter: Prefilter,
}

impl Subject {
    fn new(quota: Quota, consistency: Consistency) -> Self {
        let rules = RuleSet::new([Rule::new("rule", quota).consistency(consistency)]);
        let rules = rules.expect("a valid rule");
        let clock = ManualClock::new(1_700_000_000_000_000);
        let filter = Prefilter::new(&rules, (&clock).into(), Some(DenyCache::new()), |_| None);
        Self {
            rules,
            clock,
            filter,
        }
    }

    /// The store answers a request of one unit.
    fn told(&self, answer: Assessment) {
        let check = [Check::new(0, KEY, 1)];
        let sent = self.filter.sent();
        self.clock.advance(Duration::from_micros(300));
        let verdict = Verdict::new(0, 0, answer, Source::Store);
        let decision = Decision::new(sent.at + AHEAD + 150, [verdict], |_| true);
        let learned_by = (sent, IndexSet::default());
        self.filter.learn(&check, &decision, learned_by, |_| false);
    }

    fn answer(&self) -> Answer {
        self.filter.answer(&self.rules, &[Check::new(0, KEY, 1)])
    }
}

#[test]
fn what_a_denial_taught_is_forgotten_when_a_lease_has_gone_back() {
    let leased = Consistency::Leased {
        share: LeaseShare::percent(10),
    };
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), leased);
    subject.told(Assessment {
        fits: false,
        remaining: 0,
        reset_after: 60_000_000,
        retry: Retry::after_micros(10_000),
    });
    let Answer::Here(decision) = subject.answer() else {
        panic!("it was just denied");
    };
    assert_eq!(decision.outcome(), Outcome::Deny);
    subject.filter.handed_back(TableKey::new(0, 0, KEY));
    assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
}

/// What is told with a unit that is taken here.
fn taken_here(subject: &Subject) -> Verdict {
    let Answer::Here(decision) = subject.answer() else {
        panic!("a unit is there");
    };
    assert_eq!(
        (decision.outcome(), decision.retry()),
        (Outcome::Allow, Retry::Now)
    );
    decision.verdicts()[0]
}

#[test]
fn where_what_is_counted_here_leaves_less_than_it_cost_it_is_told_when_that_is_back() {
    let eventual = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 10,
    };
    let told = |subject: &Subject| {
        subject.told(Assessment {
            fits: true,
            remaining: 2,
            reset_after: 58_000_000,
            retry: Retry::Now,
        });
    };
    let bucket = Subject::new(Quota::gcra(60, MINUTE), eventual);
    told(&bucket);
    assert_eq!(taken_here(&bucket).retry(), Retry::Now);
    let last = taken_here(&bucket);
    assert_eq!((last.remaining(), last.retry()), (0, Retry::After(SECOND)));
    // The end of the window by the store's clock, which is known to a tenth of a second.
    let window = Subject::new(Quota::fixed_window(60, MINUTE), eventual);
    told(&window);
    assert_eq!(taken_here(&window).retry(), Retry::Now);
    let at = window.filter.store_now();
    let ends = (at / 60_000_000 + 1) * 60_000_000;
    let wait = Retry::after_micros(ends - at + 100_000);
    assert_eq!(taken_here(&window).retry(), wait);
}

#[test]
fn the_last_unit_of_a_lease_tells_when_the_store_has_another() {
    let leased = Consistency::Leased {
        share: LeaseShare::percent(10),
    };
    let subject = Subject::new(Quota::gcra(60, MINUTE), leased);
    // Of a key that is seen once nothing is kept.
    for _ in 0..2 {
        assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
    }
    let (units, generation) = (2, 7);
    let grant = Grant::Tracked { units, generation };
    let check = Check::new(0, KEY, 1);
    let times = (subject.filter.now(), subject.filter.store_now());
    subject.filter.on_reply(&check, times, Some(Some(grant)));
    assert_eq!(taken_here(&subject).retry(), Retry::Now);
    let last = taken_here(&subject);
    assert_eq!((last.remaining(), last.retry()), (0, Retry::After(SECOND)));
}

#[test]
fn a_lease_is_not_spent_after_the_machine_has_slept_for_longer_than_it_lives() {
    let leased = Consistency::Leased {
        share: LeaseShare::percent(10),
    };
    let mut subject = Subject::new(Quota::gcra(6_000, MINUTE), leased);
    let since_boot = Arc::new(AtomicU64::new(5_000_000));
    let reading = Arc::clone(&since_boot);
    let clock = process_clock::by(move || Duration::from_micros(reading.load(Ordering::Relaxed)));
    subject.filter = Prefilter::new(&subject.rules, clock, None, |_| None);
    // Of a key that is seen once nothing is kept.
    for _ in 0..2 {
        assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
    }
    let (units, generation) = (10, 7);
    let grant = Grant::Tracked { units, generation };
    let check = Check::new(0, KEY, 1);
    let times = (subject.filter.now(), subject.filter.store_now());
    let _ = subject.filter.on_reply(&check, times, Some(Some(grant)));
    assert!(matches!(subject.answer(), Answer::Here(_)));
    // It sleeps, and wakes.
    since_boot.fetch_add(20_000_000, Ordering::Relaxed);
    assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
}

#[test]
fn of_keys_that_are_new_no_count_is_begun_wherever_they_stand_in_a_request() {
    let eventual = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 10,
    };
    let mut subject = Subject::new(Quota::fixed_window(1_000, SECOND), eventual);
    let rule = |name, quota| Rule::new(name, quota).consistency(eventual);
    let rules = [
        rule("rule", Quota::fixed_window(1_000, SECOND)),
        rule("other", Quota::fixed_window(2_000, SECOND)),
    ];
    subject.rules = RuleSet::new(rules).expect("valid rules");
    subject.filter = Prefilter::new(&subject.rules, (&subject.clock).into(), None, |_| None);
    subject.told(Assessment {
        fits: true,
        remaining: 900,
        reset_after: 1_000_000,
        retry: Retry::Now,
    });
    let uncached = |checks: &[Check]| match subject.filter.answer(&subject.rules, checks) {
        Answer::Here(_) => panic!("the store has to be asked"),
        Answer::LeaseQuery(extras) => extras.uncached,
        Answer::Part(part) => part.extras.uncached,
    };
    let places = |places: &[usize]| {
        let mut uncached = IndexSet::default();
        places.iter().for_each(|place| uncached.insert(*place));
        uncached
    };
    let known = Check::new(0, KEY, 1);
    let other = |key| Check::new(1, Fingerprint::from_bits(key), 1);
    // The first is answered here, and what is asked is counted from the first that is.
    assert_eq!(uncached(&[known, other(8)]), places(&[0]));
    assert_eq!(uncached(&[known, other(8)]), places(&[]));
    assert_eq!(uncached(&[other(8), known, other(9)]), places(&[1]));
    // Two of one state go to the store, and what is not kept yet is not kept for them.
    assert_eq!(uncached(&[known, other(8), other(8)]), places(&[1, 2]));
    assert_eq!(uncached(&[known.with_cost(900), other(9)]), places(&[]));
    // The answer is heard all the same where something is kept by then.
    let reports = subject.filter.reports().expect("a rule that is counted");
    let keeps = |check: Check| reports.keeps(table_key_of(&check));
    assert!(keeps(known) && !keeps(other(8)));
    let on_reply = |uncached| {
        let checks = [known, other(8)];
        let sent = subject.filter.sent();
        let answer = Assessment {
            fits: true,
            remaining: 5,
            reset_after: 1_000_000,
            retry: Retry::Now,
        };
        let verdicts = [0, 1].map(|rule| Verdict::new(rule, 0, answer, Source::Store));
        let decision = Decision::new(sent.at + AHEAD, verdicts, |_| true);
        let replies = (sent, uncached);
        subject.filter.learn(&checks, &decision, replies, |_| false);
    };
    on_reply(places(&[0, 1]));
    assert!(!keeps(other(8)));
    let answer = subject.filter.answer(&subject.rules, &[known]);
    let Answer::Here(decision) = answer else {
        panic!("it is counted here");
    };
    // Three units were counted before, and are not reported.
    assert_eq!(decision.verdicts()[0].remaining(), 5 - 3 - 1);
    on_reply(places(&[]));
    assert!(keeps(other(8)));
}

#[test]
fn units_of_a_window_that_were_counted_alone_and_reported_go_back_to_it() {
    let eventual = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 10,
    };
    let subject = Subject::new(Quota::fixed_window(1_000, SECOND), eventual);
    let ends = |at: u64| (at / 1_000_000 + 1) * 1_000_000;
    let sent = subject.clock.now() + AHEAD + 150;
    subject.told(Assessment {
        fits: true,
        remaining: 999,
        reset_after: ends(sent) - sent,
        retry: Retry::Now,
    });
    // Another window has begun since.
    subject.clock.advance(SECOND);
    let Answer::Here(decision) = subject.answer() else {
        panic!("there is room");
    };
    let at = decision.at();
    let holding = Receipt {
        check: Check::new(0, KEY, 1),
        taken: Taken {
            at,
            fresh_at: at + decision.verdicts()[0].reset_after().as_micros() as u64,
        },
        source: decision.verdicts()[0].source(),
    };
    assert_eq!(subject.filter.all_due(9).len(), 1);
    let (holding, how) = (subject.filter.settle(&holding, Settlement::Cancel)).expect("reported");
    assert_eq!(how, Settlement::Refund(1));
    assert_eq!(holding.taken.fresh_at, ends(at));
}

#[test]
fn what_was_reported_of_a_request_that_was_then_denied_goes_back_to_the_store() {
    let eventual = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 10,
    };
    let quota = Quota::fixed_window(1_000, SECOND);
    let mut subject = Subject::new(quota, eventual);
    let rules = [
        Rule::new("rule", quota).consistency(eventual),
        Rule::new("other", Quota::gcra(1, MINUTE)),
    ];
    subject.rules = RuleSet::new(rules).expect("valid rules");
    let clock = (&subject.clock).into();
    subject.filter = Prefilter::new(&subject.rules, clock, Some(DenyCache::new()), |_| None);
    subject.told(Assessment {
        fits: true,
        remaining: 999,
        reset_after: 1_000_000,
        retry: Retry::Now,
    });
    let checks = [Check::new(0, KEY, 1), Check::new(1, KEY, 1)];
    let Answer::Part(part) = subject.filter.answer(&subject.rules, &checks) else {
        panic!("one of two is counted here");
    };
    assert_eq!(subject.filter.all_due(9).len(), 1);
    let denied = Assessment {
        fits: false,
        remaining: 0,
        reset_after: 60_000_000,
        retry: Retry::after_micros(60_000_000),
    };
    let verdict = Verdict::new(1, 0, denied, Source::Store);
    let at = subject.clock.now() + AHEAD;
    let denied = Decision::new(at, [verdict], |_| true);
    let (decision, back) = subject.filter.conclude(&subject.rules, &part, &denied);
    assert_eq!(decision.outcome(), Outcome::Deny);
    let back: Vec<_> = back
        .iter()
        .map(|(held, units)| (held.check, *units))
        .collect();
    assert_eq!(back, [(checks[0], 1)]);
}

#[test]
fn units_that_were_counted_alone_put_off_when_a_bucket_is_full_and_not_when_a_window_ends() {
    let eventual = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 10,
    };
    // A unit of the bucket takes 3 ⅓ ms.
    for (quota, unit) in [
        (Quota::gcra(300, SECOND), 3_334),
        (Quota::fixed_window(300, SECOND), 0),
    ] {
        let subject = Subject::new(quota, eventual);
        subject.told(Assessment {
            fits: true,
            remaining: 200,
            reset_after: 500_000,
            retry: Retry::Now,
        });
        let reset_after = || match subject.answer() {
            Answer::Here(decision) => decision.verdicts()[0].reset_after().as_micros(),
            answer => panic!("there is room: {answer:?}"),
        };
        // The answer was told 300 µs after it was asked for, twice.
        let told = 500_000 - 300;
        let after = [reset_after(), reset_after(), reset_after()];
        assert_eq!(after, [1, 2, 3].map(|units| told + units * unit));
        // It was full meanwhile.
        subject.clock.advance(Duration::from_millis(700));
        assert_eq!(reset_after(), unit);
    }
}

#[test]
fn while_there_is_a_line_nobody_asks_and_who_has_a_turn_in_it_is_told_when() {
    let leased = Consistency::Leased {
        share: LeaseShare::percent(10),
    };
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), leased);
    for _ in 0..2 {
        assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
    }
    let sent = subject.clock.now();
    subject.clock.advance(Duration::from_micros(300));
    let scheduled = Grant::Scheduled {
        units: 8,
        after: 500_000,
    };
    let times = (sent, sent + AHEAD + 150);
    let check = Check::new(0, KEY, 1);
    let _ = subject
        .filter
        .on_reply(&check, times, Some(Some(scheduled)));
    let Answer::Here(decision) = subject.answer() else {
        panic!("half a second is taken");
    };
    // A thousandth later than by the store's clock.
    assert_eq!(decision.retry(), Retry::after_micros(500_500 + 10_010));
    subject.clock.advance(Duration::from_micros(510_510));
    for outcome in [Outcome::Allow, Outcome::Deny] {
        let Answer::Here(decision) = subject.answer() else {
            panic!("one unit is due, and no more");
        };
        assert_eq!(decision.outcome(), outcome);
    }
    // All of the scheduled lease has come back, and as much again.
    subject.clock.advance(Duration::from_millis(200));
    for _ in 0..7 {
        assert!(matches!(subject.answer(), Answer::Here(_)));
    }
    assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
}

#[test]
fn units_that_were_reported_long_ago_are_not_taken_off_what_others_have_counted_since() {
    let eventual = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 10,
    };
    let subject = Subject::new(Quota::fixed_window(1_000, SECOND), eventual);
    subject.told(Assessment {
        fits: true,
        remaining: 999,
        reset_after: 500_000,
        retry: Retry::Now,
    });
    let Answer::Here(decision) = subject.answer() else {
        panic!("there is room");
    };
    let at = decision.at();
    let holding = Receipt {
        check: Check::new(0, KEY, 1),
        taken: Taken { at, fresh_at: at },
        source: decision.verdicts()[0].source(),
    };
    subject.clock.advance(Duration::from_millis(100));
    assert_eq!(subject.filter.all_due(9).len(), 1);
    subject.clock.advance(Duration::from_millis(100));
    assert!(matches!(subject.answer(), Answer::Here(_)));
    let unreported = subject.filter.units_unreported();
    let settled = subject.filter.settle(&holding, Settlement::Cancel);
    assert!(matches!(settled, Some((_, Settlement::Refund(1)))));
    assert_eq!(subject.filter.units_unreported(), unreported);
}

#[test]
fn a_lease_that_comes_after_all_were_handed_back_is_handed_back_as_well() {
    let leased = Consistency::Leased {
        share: LeaseShare::percent(10),
    };
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), leased);
    for _ in 0..2 {
        assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
    }
    let check = Check::new(0, KEY, 1);
    for generation in [7, 8] {
        let grant = Grant::Tracked {
            units: 10,
            generation,
        };
        let times = (subject.filter.now(), subject.filter.store_now());
        let _ = subject.filter.on_reply(&check, times, Some(Some(grant)));
        assert_eq!(subject.filter.take_out().len(), 1, "{generation}");
    }
}

#[test]
fn a_denial_is_believed_from_when_it_was_asked_for_and_not_once_the_clock_went_back() {
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), Consistency::Exact);
    let sent = subject.clock.now();
    subject.told(Assessment {
        fits: false,
        remaining: 0,
        reset_after: 60_000_000,
        retry: Retry::after_micros(10_000),
    });
    for (at, is_denied) in [(9_999, true), (10_000, false), (299, true)] {
        subject.clock.set(sent + at);
        let is_here = matches!(subject.answer(), Answer::Here(_));
        assert_eq!(is_here, is_denied, "{at}");
    }
    subject.clock.set(sent - 1_000);
    assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
}

/// Rules of which the first is granted, in windows of 50 ms, and a lease of it that came just now.
fn granted_in_short_windows(quota: Quota) -> (Subject, u64) {
    let leased = Consistency::Leased {
        share: LeaseShare::percent(50),
    };
    let mut subject = Subject::new(quota, leased);
    let rules = [
        Rule::new("rule", quota).consistency(leased),
        Rule::new("other", Quota::gcra(1, MINUTE)),
    ];
    subject.rules = RuleSet::new(rules).expect("valid rules");
    subject.filter = Prefilter::new(&subject.rules, (&subject.clock).into(), None, |_| None);
    // So that it is known what the store's clock says.
    subject.told(Assessment {
        fits: true,
        remaining: 999,
        reset_after: 40_000,
        retry: Retry::Now,
    });
    for _ in 0..2 {
        assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
    }
    // To the start of a window.
    let at = subject.filter.store_now();
    let rest = 50_000 - at % 50_000;
    subject.clock.advance(Duration::from_micros(rest));
    let at = subject.filter.store_now();
    let generation = at / 50_000;
    let (units, times) = (10, (subject.filter.now(), at));
    let grant = Grant::Tracked { units, generation };
    let check = Check::new(0, KEY, 1);
    let _ = subject.filter.on_reply(&check, times, Some(Some(grant)));
    (subject, generation)
}

fn of_50_ms() -> [(Quota, u64); 2] {
    let window = Duration::from_millis(50);
    [
        (Quota::fixed_window(1_000, window), 1),
        (Quota::sliding_window(1_000, window), 2),
    ]
}

#[test]
fn units_of_a_short_window_are_known_by_it_however_long_the_other_rules_took() {
    for (quota, weighs) in of_50_ms() {
        // Also where the store did not answer at all.
        for (passed, is_answered) in [(1_000, true), (45_000, true), (45_000, false)] {
            let (subject, window) = granted_in_short_windows(quota);
            let checks = [Check::new(0, KEY, 1), Check::new(1, KEY, 1)];
            let Answer::Part(part) = subject.filter.answer(&subject.rules, &checks) else {
                panic!("one of two is held here");
            };
            subject.clock.advance(Duration::from_micros(passed));
            let fits = Assessment {
                fits: true,
                remaining: 0,
                reset_after: 60_000_000,
                retry: Retry::Now,
            };
            let (verdict, at) = match is_answered {
                true => {
                    let verdict = Verdict::new(1, 0, fits, Source::Store);
                    (verdict, subject.filter.store_now())
                }
                false => (Verdict::unanswered(1, 0, Outcome::Failed), 0),
            };
            let decision = Decision::new(at, [verdict], |_| true);
            let (decision, back) = subject.filter.conclude(&subject.rules, &part, &decision);
            assert!(back.is_empty());
            let granted = decision.verdicts()[0];
            let until = (window + weighs) * 50_000;
            let at = decision.at();
            assert_eq!(
                at + granted.reset_after().as_micros() as u64,
                until,
                "{quota:?}"
            );
            let holding = super::refunds::holding(&checks[0], &granted, at);
            // Into the lease, which has not run out.
            assert_eq!(subject.filter.units_on_lease(), 9);
            assert_eq!(subject.filter.settle(&holding, Settlement::Cancel), None);
            assert_eq!(subject.filter.units_on_lease(), 10);
        }
    }
}

#[test]
fn units_of_a_window_of_which_nothing_is_held_are_refunded_as_the_store_has_counted_them() {
    for (quota, weighs) in of_50_ms() {
        let (subject, window) = granted_in_short_windows(quota);
        let check = Check::new(0, KEY, 3);
        let decision = match subject.filter.answer(&subject.rules, &[check]) {
            Answer::Here(decision) => decision,
            answer => panic!("it is held here: {answer:?}"),
        };
        let held = super::refunds::holding(&check, &decision.verdicts()[0], decision.at());
        // The lease runs out, or another key's place was needed.
        let mut of_another = held;
        of_another.check = Check::new(0, Fingerprint::from_bits(8), 3);
        for (passed, holding) in [(0, of_another), (49_999, held), (60_000_000, held)] {
            subject.clock.advance(Duration::from_micros(passed));
            let settled = subject.filter.settle(&holding, Settlement::Refund(2));
            let (holding, how) = settled.expect("nothing is held of it");
            assert_eq!(how, Settlement::Refund(2));
            assert_eq!(holding.taken.fresh_at, (window + weighs) * 50_000);
        }
    }
}

#[test]
fn what_went_with_a_query_that_was_not_sent_is_held_again() {
    for quota in [
        Quota::fixed_window(1_000, MINUTE),
        Quota::gcra(1_000, MINUTE),
    ] {
        let leased = Consistency::Leased {
            share: LeaseShare::percent(50),
        };
        let subject = Subject::new(quota, leased);
        for _ in 0..2 {
            assert!(matches!(subject.answer(), Answer::LeaseQuery(_)));
        }
        let check = Check::new(0, KEY, 1);
        let times = (subject.filter.now(), subject.filter.store_now());
        let generation = times.1 / 60_000_000;
        let units = 10;
        let grant = Grant::Tracked { units, generation };
        let _ = subject.filter.on_reply(&check, times, Some(Some(grant)));
        let large = [check.with_cost(20)];
        let Answer::LeaseQuery(extras) = subject.filter.answer(&subject.rules, &large) else {
            panic!("the lease is too small");
        };
        assert_eq!(subject.filter.units_on_lease(), 0);
        let (_, query) = extras.grants[0];
        subject.filter.on_not_sent(&check, query.returned);
        assert_eq!(subject.filter.units_on_lease(), 10);
        // And it is looked after as before.
        assert_eq!(subject.filter.take_out().len(), 1);
    }
}
