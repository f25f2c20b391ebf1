//! Locks and atomics of this crate and of tollgate-prefilter, in one place so that a scheduler that explores interleavings sees them
//! all.

#[cfg(not(tollgate_shuttle))]
pub use {
    parking_lot::{Mutex, MutexGuard},
    std::sync::atomic::{AtomicU64, Ordering},
};

#[cfg(tollgate_shuttle)]
pub use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

/// Locks, also after a panic of another holder: every critical section leaves the data whole at each step.
#[cfg(not(tollgate_shuttle))]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// What a mutex guards, unless another thread has it.
#[cfg(not(tollgate_shuttle))]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock()
}

/// [`lock`] for what is held for some nanoseconds, and by one thread after the other.
#[cfg(not(tollgate_shuttle))]
pub fn lock_briefly<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Some(guard) => guard,
        None => back_off(mutex),
    }
}

/// The pauses before the second attempt, some hundred nanoseconds. They double with each.
#[cfg(not(tollgate_shuttle))]
const PAUSES: u32 = 32;
#[cfg(not(tollgate_shuttle))]
const ATTEMPTS: u32 = 4;

/// Looks away for longer than the lock is held: each attempt takes the cache line away from the thread that works. That one
/// goes through several times meanwhile, with everything at hand, and both get more done than if they alternated.
#[cfg(not(tollgate_shuttle))]
#[cold]
#[inline(never)]
fn back_off<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for attempt in 0..ATTEMPTS {
        for _ in 0..PAUSES << attempt {
            std::hint::spin_loop();
        }
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
    }
    mutex.lock()
}

#[cfg(tollgate_shuttle)]
pub fn lock_briefly<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    lock(mutex)
}

#[cfg(tollgate_shuttle)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(tollgate_shuttle)]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock().ok()
}
