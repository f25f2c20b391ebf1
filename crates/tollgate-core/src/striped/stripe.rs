//! The stripe of a thread.

use std::{
    cell::Cell,
    num::NonZero,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// The most stripes. With more processors, a few threads share each.
const MOST: usize = 256;

/// The number of stripes: one per processor, rounded up to a power of two.
pub(super) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        processors.next_power_of_two().min(MOST)
    })
}

/// Of a thread that has not asked for its stripe yet.
const UNKNOWN: usize = usize::MAX;

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(UNKNOWN) };
}

/// The stripe of the current thread. Threads get their stripes in rotation, in the order of their first call: the workers of a
/// runtime have one each.
#[inline]
#[must_use]
pub fn current() -> usize {
    match STRIPE.get() {
        UNKNOWN => next(),
        stripe => stripe,
    }
}

fn next() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let stripe = THREADS.fetch_add(1, Ordering::Relaxed) & (count() - 1);
    STRIPE.set(stripe);
    stripe
}

/// Runs `then` on a new thread of each stripe, one after the other: for tests.
///
/// # Panics
///
/// If `then` does.
pub fn on_each(then: impl Fn() + Sync) {
    for stripe in 0..count() {
        let on_it = || {
            STRIPE.set(stripe);
            then();
        };
        thread::scope(|scope| scope.spawn(on_it).join().expect("it does not panic"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_stripe_and_each_that_comes_gets_the_next() {
        assert_eq!(current(), current());
        // Threads of other tests come in between.
        let stripes: Vec<usize> = (0..1_000).map(|_| next()).collect();
        let follows = |pair: &&[usize]| pair[1] == (pair[0] + 1) & (count() - 1);
        assert!(stripes.windows(2).filter(follows).count() > 500);
        assert!(stripes.iter().all(|stripe| *stripe < count()));
    }
}
