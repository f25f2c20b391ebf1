//! Tests of decisions and their verdicts.

use super::*;
use crate::{
    algorithm::{GcraState, Taken},
    check::Check,
    key::Fingerprint,
};

/// What the rule at this index says, by counting.
fn counted(rule: u16, fits: bool, retry: Retry) -> Verdict {
    let answer = Assessment::new(fits, 3, 50, retry);
    Verdict::new(rule, 0, answer, Source::Store)
}

fn unanswered(rule: u16, outcome: Outcome) -> Verdict {
    Verdict::unanswered(rule, 0, outcome)
}

#[test]
fn a_decision_concludes_from_the_verdicts_of_enforced_rules() {
    let after = |seconds| Retry::After(Duration::from_secs(seconds));
    let fits = counted(0, true, after(9));
    let denied = counted(1, false, after(5));
    let slots = counted(2, false, Retry::Unknown).of_slots(None);
    let never = counted(3, false, Retry::Never);
    let failed = unanswered(4, Outcome::Failed);
    let mut closed = failed;
    closed.deny_for_failure();
    assert_eq!(closed.source(), Source::Fallback);
    let skipped = unanswered(5, Outcome::NotDecided);
    for nobody in [failed, skipped] {
        assert_eq!(nobody.source(), Source::None);
    }
    let known = [fits, denied, slots, failed, closed, skipped].map(|it| it.knows_remaining());
    assert_eq!(known, [true, true, true, false, false, false]);
    // The rules from 100 on are shadows.
    let shadow = |verdict: Verdict| Verdict {
        rule: verdict.rule + 100,
        ..verdict
    };
    let allowed = (Outcome::Allow, None, Retry::Now);
    let deny = |reason, retry| (Outcome::Deny, Some(reason), retry);
    let is_failed = (Outcome::Failed, Some(Reason::StoreFailed), Retry::Unknown);
    for (verdicts, expected) in [
        (&[][..], allowed),
        (&[fits, skipped], allowed),
        (&[fits, shadow(denied), shadow(failed)], allowed),
        (&[fits, denied], deny(Reason::Quota, after(5))),
        (
            &[denied, counted(6, false, after(7))],
            deny(Reason::Quota, after(7)),
        ),
        (&[denied, never], deny(Reason::Never, Retry::Never)),
        (&[denied, shadow(never)], deny(Reason::Quota, after(5))),
        (&[slots], deny(Reason::Slots, Retry::Unknown)),
        (
            &[slots, shadow(denied)],
            deny(Reason::Slots, Retry::Unknown),
        ),
        (&[slots, denied], deny(Reason::Quota, Retry::Unknown)),
        (&[closed], deny(Reason::StoreFailed, Retry::Unknown)),
        (&[closed, denied], deny(Reason::Quota, Retry::Unknown)),
        (
            &[closed, shadow(denied)],
            deny(Reason::StoreFailed, Retry::Unknown),
        ),
        (&[failed, denied], deny(Reason::Quota, after(5))),
        (&[fits, failed], is_failed),
        (&[shadow(denied), failed], is_failed),
    ] {
        for verdicts in [verdicts.to_vec(), verdicts.iter().rev().copied().collect()] {
            let is_enforced = |verdict: &Verdict| verdict.rule() < 100;
            let one = match &verdicts[..] {
                [one] => Some(Decision::of_one(7, *one, is_enforced(one))),
                _ => None,
            };
            let decision = Decision::new(7, verdicts, is_enforced);
            for decision in one.iter().chain([&decision]) {
                let concluded = (decision.outcome(), decision.reason(), decision.retry());
                assert_eq!(concluded, expected, "{decision:?}");
            }
            let wait = match expected.2 {
                Retry::After(wait) => Some(wait),
                _ => None,
            };
            assert_eq!(decision.retry_after(), wait);
        }
    }
}

#[test]
fn slots_have_a_number_where_they_were_taken_and_no_time() {
    let verdict = counted(0, true, Retry::Now);
    assert_eq!(verdict.slot_number(), None);
    assert_eq!(verdict.reset_after_ticks(), 50);
    assert_eq!(verdict.of_slots(None).slot_number(), None);
    let taken = verdict.of_slots(Some(8));
    assert_eq!(taken.slot_number(), Some(8));
    for slots in [verdict.of_slots(None), taken] {
        assert!(slots.is_of_slots());
        assert_eq!(slots.reset_after(), Duration::ZERO);
        assert_eq!(slots.reset_after_ticks(), 0);
    }
}

#[test]
fn a_wait_of_any_length_is_a_wait() {
    for micros in [0, 1, u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX] {
        let wait = Duration::from_micros(micros);
        let expected = Retry::After(wait.min(Duration::from_micros(u64::MAX - 3)));
        assert_eq!(counted(0, false, Retry::After(wait)).retry(), expected);
    }
    let longest = counted(0, false, Retry::After(Duration::MAX)).retry();
    assert!(matches!(longest, Retry::After(_)), "{longest:?}");
}

#[test]
fn a_request_that_is_denied_after_its_wait_has_no_place_left() {
    let check = Check::new(0, Fingerprint::from_bits(7), 1);
    let place = Hold::in_queue(check, Taken::new(0, 1), GcraState::default());
    let wait = Duration::from_secs(2);
    let waits = || {
        let verdicts = [
            counted(0, true, Retry::Now),
            unanswered(1, Outcome::NotDecided),
        ];
        Decision::new(7, verdicts, |_| true).delayed(wait, [place])
    };
    for (fits, places) in [(true, &[place][..]), (false, &[])] {
        let then = Decision::of_one(9, counted(1, fits, Retry::Unknown), true);
        let started = waits().started(then.clone(), &[1], |_| true);
        assert_eq!(started.is_allowed(), fits);
        assert_eq!(started.verdicts()[1], then.verdicts()[0]);
        assert_eq!(started.queue_places(), places);
        assert_eq!(started.at(), 9);
        let times = (started.delay(), started.waited());
        assert_eq!(times, (Duration::ZERO, wait));
    }
    let denied = waits().denied_for(Reason::WaitExpired);
    assert_eq!(denied.outcome(), Outcome::Deny);
    assert_eq!(denied.reason(), Some(Reason::WaitExpired));
    assert_eq!(denied.delay(), Duration::ZERO);
    assert!(denied.queue_places().is_empty());
}

#[test]
fn a_decision_is_degraded_where_one_of_its_checks_is() {
    let fits = counted(0, true, Retry::Now);
    let mut open = unanswered(1, Outcome::Failed);
    open.pass_degraded();
    assert!(open.is_degraded() && !open.has_numbers());
    for (verdicts, degraded) in [(&[fits][..], false), (&[fits, open], true), (&[open], true)] {
        let decision = Decision::new(7, verdicts.iter().copied(), |_| true);
        assert!(decision.is_allowed());
        assert_eq!(decision.is_degraded(), degraded);
    }
}
