//! Checks that another limiter made: no call takes them for its own.

use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule, StoreErrorKind};

use crate::{at_once, layered, left};

#[test]
fn a_check_of_another_limiter_takes_nothing_and_resets_nothing() {
    let rule = || Rule::new("rule", Quota::gcra(5, MINUTE).burst(3));
    for rule in [rule(), rule().wait(MINUTE)] {
        let store = MemoryStore::new();
        let limiter = Limiter::new(store, [rule.clone()]).expect("valid");
        let other = Limiter::new(MemoryStore::new(), [rule]).expect("valid");
        let ann = Key::of(["ann"]);
        let own = limiter.check("rule", &ann).expect("a rule");
        let foreign = other.check("rule", &ann).expect("a rule");
        assert!(at_once(limiter.acquire(&[own])).is_allowed());
        for checks in [&[foreign][..], &[own, foreign], &[foreign, own]] {
            let denied = at_once(layered(&limiter).attempt(checks).within(MINUTE).decide());
            assert!(!denied.is_allowed());
            assert!(!at_once(limiter.acquire(checks)).is_allowed());
            assert!(!at_once(limiter.peek(checks)).is_allowed());
            let error = at_once(limiter.reset_all(checks)).expect_err("it is not ours");
            assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
            assert_eq!(left(&limiter, "rule", "ann"), 2);
        }
        assert_eq!(at_once(limiter.reset_all(&[own])).ok(), Some(true));
        assert_eq!(left(&limiter, "rule", "ann"), 3);
    }
}
