//! Locks and atomics of tollgate's crates, in one place so that a scheduler that explores interleavings of this one and of
//! tollgate-prefilter sees them all.

#[cfg(not(tollgate_shuttle))]
pub use {
    parking_lot::{Mutex, MutexGuard},
    spin::mutex::{SpinMutex as BriefMutex, SpinMutexGuard as BriefGuard},
    std::sync::atomic::{AtomicU64, Ordering},
};

#[cfg(tollgate_shuttle)]
pub use shuttle::sync::{
    Mutex, Mutex as BriefMutex, MutexGuard, MutexGuard as BriefGuard,
    atomic::{AtomicU64, Ordering},
};

/// Locks, also after a panic of another holder: every critical section leaves the data whole at each step.
#[cfg(not(tollgate_shuttle))]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// What a mutex guards, unless another thread has it.
#[cfg(not(tollgate_shuttle))]
pub fn try_lock<T>(mutex: &BriefMutex<T>) -> Option<BriefGuard<'_, T>> {
    mutex.try_lock()
}

/// [`lock`] for what is mostly held for some nanoseconds, and by one thread after the other. Sometimes it is for longer: a table gets
/// room, a holder waits for another lock, or the clock is an application's.
///
/// A thread releases it by a plain store, which is no fence. A lock that wakes others takes a second locked instruction for that, a
/// tenth of a check. So nobody is woken here: a thread that does not get the lock tries again. Now and then it sleeps, and leaves the
/// processor to the thread that holds the lock.
#[cfg(not(tollgate_shuttle))]
#[inline]
pub fn lock_briefly<T>(mutex: &BriefMutex<T>) -> BriefGuard<'_, T> {
    match mutex.try_lock() {
        Some(guard) => guard,
        None => back_off(mutex),
    }
}

/// The pauses before the second attempt, some hundred nanoseconds. They double with each of the first attempts.
#[cfg(not(tollgate_shuttle))]
const PAUSES: u32 = 32;
#[cfg(not(tollgate_shuttle))]
const ATTEMPTS_AWAKE: u32 = 4;
/// The attempts before a thread sleeps. After that it begins anew.
#[cfg(not(tollgate_shuttle))]
const ATTEMPTS: u32 = 12;
#[cfg(not(tollgate_shuttle))]
const NAP: std::time::Duration = std::time::Duration::from_micros(50);

/// Looks away for longer than the lock is held: each attempt takes the cache line away from the thread that works. That one
/// goes through several times meanwhile, with everything at hand, and both get more done than if they alternated.
#[cfg(not(tollgate_shuttle))]
#[cold]
#[inline(never)]
#[expect(
    clippy::disallowed_methods,
    reason = "the thread that has the lock does not run: it gets the processor"
)]
fn back_off<T>(mutex: &BriefMutex<T>) -> BriefGuard<'_, T> {
    let mut attempt = 0;
    loop {
        match attempt {
            ..ATTEMPTS_AWAKE => (0..PAUSES << attempt).for_each(|_| std::hint::spin_loop()),
            ATTEMPTS_AWAKE..ATTEMPTS => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        attempt = (attempt + 1) % (ATTEMPTS + 1);
    }
}

#[cfg(tollgate_shuttle)]
pub fn lock_briefly<T>(mutex: &BriefMutex<T>) -> BriefGuard<'_, T> {
    lock(mutex)
}

#[cfg(tollgate_shuttle)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(tollgate_shuttle)]
pub fn try_lock<T>(mutex: &BriefMutex<T>) -> Option<BriefGuard<'_, T>> {
    mutex.try_lock().ok()
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "others sleep meanwhile")]
    fn threads_take_turns_also_where_the_one_with_the_lock_does_not_run() {
        let count = BriefMutex::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for n in 0..2_000 {
                        let mut count = lock_briefly(&count);
                        *count += 1;
                        // Long enough that the others sleep.
                        if n % 500 == 0 {
                            thread::sleep(10 * NAP);
                        }
                    }
                });
            }
        });
        assert_eq!(*lock_briefly(&count), 16_000);
    }
}
