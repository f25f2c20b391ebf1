//! Locks and atomics of the whole crate, in one place so that a scheduler that explores interleavings sees them all.

#[cfg(not(tollgate_shuttle))]
pub(crate) use {
    parking_lot::{Mutex, MutexGuard},
    std::sync::atomic::{AtomicU64, Ordering},
};

#[cfg(tollgate_shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

/// Locks, also after a panic of another holder: every critical section of this crate leaves the data whole at each step.
#[cfg(not(tollgate_shuttle))]
#[inline(always)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(tollgate_shuttle)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
