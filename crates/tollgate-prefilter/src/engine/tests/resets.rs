//! States that are about to be forgotten.

use tollgate_core::{Check, MINUTE, Quota, SECOND};

use crate::{
    NoReply, ReturnedLease,
    engine::tests::subject::{
        AHEAD, EVENTUAL, LEASED, Subject, fits, key, leased_bucket, one, tracked,
    },
};

fn held(subject: &Subject) -> u64 {
    subject.engine.usage(subject.now()).units_on_lease
}

#[test]
fn a_reset_takes_out_the_lease_of_its_key_and_of_no_other() {
    let subject = leased_bucket(tracked(10, 7));
    assert!(subject.is_local(&[one()]));
    // Another key, and a check that costs nothing.
    for other in [Check::new(0, key(8), 1), one().with_cost(0)] {
        let reset = subject.rules.begin_reset(&[other], subject.now());
        assert!(reset.returned().is_empty());
        reset.finish(Ok(&|_| false));
        assert_eq!(held(&subject), 9);
    }
    let reset = subject.rules.begin_reset(&[one()], subject.now());
    let returned = (
        one().with_cost(0),
        ReturnedLease {
            size: 10,
            left: 9,
            generation: 7,
        },
    );
    assert_eq!(reset.returned(), [returned]);
    assert!(!reset.was_counted());
    assert_eq!(held(&subject), 0);
    assert!(!subject.is_local(&[one()]));
    reset.finish(Ok(&|_| false));
}

#[test]
fn a_lease_of_a_window_is_here_again_if_its_reset_was_certainly_not_carried_out() {
    let window = |subject: &Subject| (subject.now() + AHEAD) / 60_000_000;
    let leased = || {
        let subject = Subject::new(Quota::fixed_window(1_000, MINUTE), LEASED);
        subject.known(fits(900, 500_000), tracked(10, window(&subject)));
        assert_eq!(held(&subject), 10);
        subject
    };
    let refused: &dyn Fn(usize) -> bool = &|index| index == 0;
    let taken: &dyn Fn(usize) -> bool = &|_| false;
    for (reply, left) in [
        (Ok(refused), 10),
        (Err(NoReply::NotRun), 10),
        (Err(NoReply::NothingToSend), 10),
        (Ok(taken), 0),
        (Err(NoReply::Unknown), 0),
    ] {
        let subject = leased();
        let reset = subject.rules.begin_reset(&[one()], subject.now());
        assert_eq!(held(&subject), 0);
        reset.finish(reply);
        assert_eq!(held(&subject), left);
    }
}

#[test]
fn a_reset_forgets_what_is_counted_here_and_says_whether_there_was_any() {
    let subject = Subject::new(Quota::fixed_window(1_000, SECOND), EVENTUAL);
    subject.known(fits(900, 1_000_000), None);
    let reset = || subject.rules.begin_reset(&[one()], subject.now());
    assert!(!reset().was_counted());
    let _ = subject.decided(&[one()], fits(900, 1_000_000));
    assert!(subject.is_local(&[one().with_cost(3)]));
    assert!(reset().was_counted());
    assert_eq!(subject.engine.usage(subject.now()).units_unreported, 0);
    assert!(!subject.is_local(&[one()]));
    assert_eq!(subject.flush(), (0, 0));
}
