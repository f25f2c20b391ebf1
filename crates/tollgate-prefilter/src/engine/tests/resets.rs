//! States that are about to be forgotten.

use tollgate_core::{MINUTE, Quota};

use crate::{
    NoReply,
    engine::tests::subject::{AHEAD, LEASED, Subject, fits, one, tracked},
};

fn held(subject: &Subject) -> u64 {
    subject.engine.usage(subject.now()).units_on_lease
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
