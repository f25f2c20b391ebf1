//! Decisions as stores put them together.

use std::time::Duration;

use tollgate_core::{
    Decision, Outcome, Reason, Source, Verdict,
    algorithm::{Assessment, Retry},
};

#[test]
fn the_decision_about_one_check_is_the_one_that_its_verdict_concludes_to() {
    let retries = [
        Retry::Now,
        Retry::After(Duration::from_millis(70)),
        Retry::Never,
        Retry::Unknown,
    ];
    let mut verdicts = Vec::new();
    for retry in retries {
        for fits in [true, false] {
            let answer = Assessment::new(fits, 3, 9, retry);
            let verdict = Verdict::new(1, 2, answer, Source::Store);
            verdicts.extend([verdict, verdict.of_slots()]);
        }
    }
    for outcome in [
        Outcome::Allow,
        Outcome::Deny,
        Outcome::Failed,
        Outcome::NotDecided,
    ] {
        verdicts.push(Verdict::unanswered(1, 2, outcome));
    }
    for verdict in verdicts {
        for enforced in [true, false] {
            let one = Decision::of_one(77, verdict, enforced);
            let same = Decision::new(77, [verdict], |_| enforced);
            let says = |decision: &Decision| {
                let (outcome, reason) = (decision.outcome(), decision.reason());
                (decision.at(), outcome, reason, decision.retry())
            };
            assert_eq!(says(&one), says(&same), "{verdict:?}, {enforced}");
            assert_eq!(one.verdicts(), same.verdicts());
        }
    }
    let failed = Verdict::unanswered(0, 0, Outcome::Failed);
    let failed = Decision::of_one(77, failed, true);
    assert_eq!(failed.reason(), Some(Reason::StoreFailed));
}
