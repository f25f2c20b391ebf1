//! Locks and atomics of the whole crate, in one place so that a scheduler that explores interleavings sees them all.

use std::sync::PoisonError;
#[cfg(not(tollgate_shuttle))]
use std::sync::TryLockError;

#[cfg(not(tollgate_shuttle))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(tollgate_shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

/// Locks, also after a panic of another holder: every critical section of this crate leaves the data whole at each step.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, shared with other readers.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// The same as [`lock`], where what is done under the lock takes less than it takes to fall asleep and to be woken.
#[cfg(not(tollgate_shuttle))]
#[inline]
pub(crate) fn lock_briefly<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => lock_contended(mutex),
    }
}

#[cfg(tollgate_shuttle)]
pub(crate) fn lock_briefly<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    lock(mutex)
}

/// Stands back for a moment, and a longer one each time, before it sleeps.
#[cfg(not(tollgate_shuttle))]
#[cold]
#[inline(never)]
fn lock_contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for round in 0..12_u32 {
        for _ in 0..4 << round.min(5) {
            std::hint::spin_loop();
        }
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    lock(mutex)
}
