//! Two versions of a service on the same states, while one replaces the other.

#[path = "../support/mod.rs"]
mod support;

mod buckets;
mod carried;
mod storm;

/// What the other processes do; nothing in this one.
#[test]
fn a_process_plays_its_role() {
    support::child::play();
}
