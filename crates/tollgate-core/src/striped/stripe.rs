//! The number and the stripe of a thread.

use std::{
    cell::Cell,
    num::NonZero,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// The most stripes. With more processors, a few threads share each.
const MOST: usize = 1 << STRIPE_BITS;
const STRIPE_BITS: u32 = 8;

/// The number of stripes: one per processor, rounded up to a power of two.
pub(super) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        processors.next_power_of_two().min(MOST)
    })
}

/// The number of a thread, which no other thread of the process has. Its lowest bits are the stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNumber(u64);

impl ThreadNumber {
    /// No thread has it.
    pub const NONE: Self = Self(0);
    /// The number of a thread that has not asked for one yet, and of each that has ended.
    const UNKNOWN: Self = Self(u64::MAX);

    /// As it is stored in an atomic.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Its stripe, below the number of stripes.
    #[inline]
    #[must_use]
    pub const fn stripe(self) -> usize {
        self.0 as usize & (MOST - 1)
    }

    /// The number of a thread that there might be: for tests.
    #[cfg(all(test, tollgate_shuttle))]
    pub(crate) fn on_stripe(stripe: usize) -> Self {
        Self::next(|_| stripe)
    }

    /// The next number, from 1 on, with a stripe. One million numbers a second would last for two thousand years.
    fn next(stripe: impl FnOnce(u64) -> usize) -> Self {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        let before = THREADS.fetch_add(1, Ordering::Relaxed);
        Self((before + 1) << STRIPE_BITS | stripe(before) as u64)
    }
}

thread_local! {
    static NUMBER: Cell<ThreadNumber> = const { Cell::new(ThreadNumber::UNKNOWN) };
    static END: End = const { End(OnceLock::new()) };
}

/// The number of the current thread. Threads get their stripes in rotation, in the order of their first call: the workers of a
/// runtime have one each.
#[inline]
#[must_use]
pub fn thread_number() -> ThreadNumber {
    let number = NUMBER.get();
    if number != ThreadNumber::UNKNOWN {
        return number;
    }
    let number = next();
    NUMBER.set(number);
    number
}

#[cold]
fn next() -> ThreadNumber {
    ThreadNumber::next(|threads| threads as usize & (count() - 1))
}

/// The stripe of the current thread.
#[inline]
#[must_use]
pub fn current() -> usize {
    thread_number().stripe()
}

/// Says when a thread has ended.
struct End(OnceLock<Arc<AtomicBool>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(has_ended) = self.0.get() {
            // What else is dropped with the thread does not act in its name any more.
            NUMBER.set(ThreadNumber::UNKNOWN);
            has_ended.store(true, Ordering::Release);
        }
    }
}

/// Becomes true when the current thread has ended, and has written all that it writes under its
/// [number](thread_number). `None`: it is ending.
#[must_use]
pub fn thread_end() -> Option<Arc<AtomicBool>> {
    let has_ended = |end: &End| Arc::clone(end.0.get_or_init(Arc::default));
    END.try_with(has_ended).ok()
}

/// Runs `then` on a new thread of each stripe, one after the other: for tests.
///
/// # Panics
///
/// If `then` does.
pub fn on_each(then: impl Fn() + Sync) {
    for stripe in 0..count() {
        let on_it = || {
            NUMBER.set(ThreadNumber::next(|_| stripe));
            then();
        };
        thread::scope(|scope| scope.spawn(on_it).join().expect("it does not panic"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_stripe() {
        let (first, again) = (current(), current());
        assert_eq!(first, again);
        assert!(first < count());
        assert!(count().is_power_of_two());
    }

    #[test]
    fn a_thread_that_has_ended_says_so_and_leaves_its_number() {
        let (number, has_ended) = thread::spawn(|| (thread_number(), thread_end()))
            .join()
            .expect("no panic");
        let has_ended = has_ended.expect("it was not ending");
        assert!(has_ended.load(Ordering::Acquire));
        assert_ne!(number, thread_number());
        let here = thread_end().expect("it is not ending");
        assert!(!here.load(Ordering::Acquire));
    }

    #[test]
    fn what_is_dropped_after_a_thread_has_ended_has_not_its_number() {
        struct Last(Arc<AtomicU64>);
        impl Drop for Last {
            fn drop(&mut self) {
                assert!(thread_end().is_none());
                self.0.store(thread_number().bits(), Ordering::Release);
            }
        }
        thread_local! {
            static LAST: Cell<Option<Last>> = const { Cell::new(None) };
        }
        let last = Arc::new(AtomicU64::new(0));
        let number = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // What a thread begins to use first it drops last.
                LAST.set(Some(Last(Arc::clone(&last))));
                assert!(thread_end().is_some());
                thread_number()
            });
            thread.join().expect("no panic")
        });
        assert_ne!(last.load(Ordering::Acquire), 0);
        assert_ne!(last.load(Ordering::Acquire), number.bits());
    }

    #[test]
    fn each_thread_that_comes_gets_the_next_stripe() {
        // Threads of other tests come in between.
        let stripes: Vec<usize> = (0..1_000).map(|_| next().stripe()).collect();
        let follows = |pair: &&[usize]| pair[1] == (pair[0] + 1) & (count() - 1);
        assert!(stripes.windows(2).filter(follows).count() > 500);
        assert!(stripes.iter().all(|stripe| *stripe < count()));
    }
}
