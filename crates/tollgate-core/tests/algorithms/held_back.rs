//! Units of a bucket that are out of it for a while: held back, and put back.

use proptest::prelude::*;
use tollgate_core::{
    MINUTE, Quota, SECOND,
    algorithm::{Algorithm, Gcra, GcraState},
};

const NOW: u64 = 1_700_000_000_000_000;

fn left(quota: &Gcra, state: &GcraState) -> u64 {
    quota.assess(state, NOW, 0).remaining
}

proptest! {
    #[test]
    fn units_that_are_held_back_are_not_there_and_are_put_back_up_to_the_burst(
        rate in 1_u64..20,
        burst in 1_u64..30,
        used in 0_u64..30,
        held in 0_u64..60,
        back in 0_u64..60,
        of_a_minute: bool,
    ) {
        let period = if of_a_minute { MINUTE } else { SECOND };
        let quota = Gcra::new(&Quota::gcra(rate, period).burst(burst)).expect("valid");
        let mut state = GcraState::default();
        let used = used.min(burst);
        quota.take(&mut state, NOW, used);
        let before = state;

        // Held back are the units of the whole bucket: what is used already counts among them.
        quota.hold_back(&mut state, NOW, held);
        prop_assert_eq!(left(&quota, &state), burst - used.max(held.min(burst)));
        if held <= used {
            prop_assert_eq!(state, before);
        }

        let out = burst - left(&quota, &state);
        quota.put_back(&mut state, NOW, back);
        prop_assert_eq!(left(&quota, &state), burst - out.saturating_sub(back));
        // As if the rest alone had been taken.
        let mut rest = GcraState::default();
        quota.take(&mut rest, NOW, out.saturating_sub(back));
        if out > back {
            prop_assert_eq!(state, rest);
        }
    }
}

#[test]
fn units_are_put_back_to_a_time_that_the_bucket_is_not_full_again_at() {
    let quota = Gcra::new(&Quota::gcra(1, SECOND).burst(10)).expect("valid");
    let mut state = GcraState::default();
    quota.take(&mut state, NOW, 7);
    // Two have come back by themselves, and five are out.
    let later = NOW + 2_000_000;
    quota.put_back(&mut state, later, 3);
    assert_eq!(quota.assess(&state, later, 0).remaining, 8);
    quota.put_back(&mut state, later, u64::MAX);
    assert_eq!(quota.assess(&state, later, 0).remaining, 10);
    quota.hold_back(&mut state, later, u64::MAX);
    assert_eq!(quota.assess(&state, later, 0).remaining, 0);
    assert_eq!(quota.fresh_at(&state), later + 10_000_000);
    let mut fresh = GcraState::default();
    quota.hold_back(&mut fresh, NOW, 0);
    assert_eq!(fresh, GcraState::default());
}
