//! Processes that share limits: together they admit what one would.

mod crash_loop;
mod fleet;
mod killed;
mod paced;
mod swapped;
mod swapped_in_time;
mod together;
mod versions;

/// What the other processes do; nothing in this one.
#[test]
fn a_process_plays_its_role() {
    tollgate_test_services::child::play();
    crash_loop::play();
    paced::play();
    swapped::play();
    swapped_in_time::play();
}
