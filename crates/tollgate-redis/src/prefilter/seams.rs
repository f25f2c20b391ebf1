//! Tests of what stands between what a process holds and what the store knows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_core::{
    Check, Consistency, Decision, Fingerprint, Holding, MINUTE, ManualClock, Outcome, Quota, Retry,
    Rule, RuleSet, SECOND, Settlement, Source, Verdict, algorithm::Assessment, algorithm::Taken,
};
use tollgate_prefilter::Lot;

use crate::prefilter::{
    deny::DenyCache,
    filter::Prefilter,
    part::{Answer, Places},
    process_clock,
    slot::{Slot, slot_of},
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
        let learned_by = (sent, Places::default());
        self.filter.learn(&check, &decision, learned_by, |_| false);
    }

    fn answer(&self) -> Answer {
        self.filter.answer(&self.rules, &[Check::new(0, KEY, 1)])
    }
}

#[test]
fn what_a_denial_taught_is_forgotten_when_a_lot_has_gone_back() {
    let leased = Consistency::Leased {
        reserve_permille: 100,
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
    subject.filter.handed_back(Slot::new(0, 0, KEY));
    assert!(matches!(subject.answer(), Answer::Ask(_)));
}

#[test]
fn a_lot_is_not_spent_after_the_machine_has_slept_for_longer_than_it_lives() {
    let leased = Consistency::Leased {
        reserve_permille: 100,
    };
    let mut subject = Subject::new(Quota::gcra(6_000, MINUTE), leased);
    let since_boot = Arc::new(AtomicU64::new(5_000_000));
    let reading = Arc::clone(&since_boot);
    let clock = process_clock::by(move || Duration::from_micros(reading.load(Ordering::Relaxed)));
    subject.filter = Prefilter::new(&subject.rules, clock, None, |_| None);
    // Of a key that is seen once nothing is kept.
    for _ in 0..2 {
        assert!(matches!(subject.answer(), Answer::Ask(_)));
    }
    let (units, generation) = (10, 7);
    let lot = Lot::Parking { units, generation };
    let check = Check::new(0, KEY, 1);
    let times = (subject.filter.now(), subject.filter.store_now());
    let _ = subject.filter.answered(&check, times, Some(Some(lot)));
    assert!(matches!(subject.answer(), Answer::Here(_)));
    // It sleeps, and wakes.
    since_boot.fetch_add(20_000_000, Ordering::Relaxed);
    assert!(matches!(subject.answer(), Answer::Ask(_)));
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
    let unkept = |checks: &[Check]| match subject.filter.answer(&subject.rules, checks) {
        Answer::Here(_) => panic!("the store has to be asked"),
        Answer::Ask(asking) => asking.unkept,
        Answer::Part(part) => part.asking.unkept,
    };
    let places = |places: &[usize]| {
        let mut unkept = Places::default();
        places.iter().for_each(|place| unkept.insert(*place));
        unkept
    };
    let known = Check::new(0, KEY, 1);
    let other = |key| Check::new(1, Fingerprint::from_bits(key), 1);
    // The first is answered here, and what is asked is counted from the first that is.
    assert_eq!(unkept(&[known, other(8)]), places(&[0]));
    assert_eq!(unkept(&[known, other(8)]), places(&[]));
    assert_eq!(unkept(&[other(8), known, other(9)]), places(&[1]));
    // Two of one state go to the store, and what is not kept yet is not kept for them.
    assert_eq!(unkept(&[known, other(8), other(8)]), places(&[1, 2]));
    assert_eq!(unkept(&[known.with_cost(900), other(9)]), places(&[]));
    // The answer is heard all the same where something is kept by then.
    let reports = subject.filter.reports().expect("a rule that is counted");
    let keeps = |check: Check| reports.keeps(slot_of(&check));
    assert!(keeps(known) && !keeps(other(8)));
    let answered = |unkept| {
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
        let heard = (sent, unkept);
        subject.filter.learn(&checks, &decision, heard, |_| false);
    };
    answered(places(&[0, 1]));
    assert!(!keeps(other(8)));
    let answer = subject.filter.answer(&subject.rules, &[known]);
    let Answer::Here(decision) = answer else {
        panic!("it is counted here");
    };
    // Three units were counted before, and are not reported.
    assert_eq!(decision.verdicts()[0].remaining(), 5 - 3 - 1);
    answered(places(&[]));
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
    let holding = Holding {
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
        reserve_permille: 100,
    };
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), leased);
    for _ in 0..2 {
        assert!(matches!(subject.answer(), Answer::Ask(_)));
    }
    let sent = subject.clock.now();
    subject.clock.advance(Duration::from_micros(300));
    let segment = Lot::Segment {
        units: 8,
        after: 500_000,
    };
    let times = (sent, sent + AHEAD + 150);
    let check = Check::new(0, KEY, 1);
    let _ = subject.filter.answered(&check, times, Some(Some(segment)));
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
    // All of the segment has come back, and as much again.
    subject.clock.advance(Duration::from_millis(200));
    for _ in 0..7 {
        assert!(matches!(subject.answer(), Answer::Here(_)));
    }
    assert!(matches!(subject.answer(), Answer::Ask(_)));
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
    let holding = Holding {
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
fn a_lot_that_comes_after_all_were_handed_back_is_handed_back_as_well() {
    let leased = Consistency::Leased {
        reserve_permille: 100,
    };
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), leased);
    for _ in 0..2 {
        assert!(matches!(subject.answer(), Answer::Ask(_)));
    }
    let check = Check::new(0, KEY, 1);
    for generation in [7, 8] {
        let lot = Lot::Parking {
            units: 10,
            generation,
        };
        let times = (subject.filter.now(), subject.filter.store_now());
        let _ = subject.filter.answered(&check, times, Some(Some(lot)));
        assert_eq!(subject.filter.hand_back().len(), 1, "{generation}");
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
    assert!(matches!(subject.answer(), Answer::Ask(_)));
}
