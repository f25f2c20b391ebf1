//! Locks and atomics of the whole crate, in one place so that a scheduler that explores interleavings sees them all.

use std::sync::TryLockError;

#[cfg(not(tollgate_shuttle))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

#[cfg(tollgate_shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

/// Locks, also after a panic of another holder.
///
/// Every critical section of this crate leaves the data whole at each of its steps, so that a poisoned lock says
/// nothing; refusing service for it would turn one panic into an outage.
#[inline(always)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => lock_contended(mutex),
    }
}

/// Waits a little and longer each time before it tries again.
///
/// What a lock is held for takes some nanoseconds, and its cache line takes longer to come over from another core. A
/// thread that stands back for a moment lets the other one do several steps on a line that is near, and both are faster
/// for it than if they took turns. Only where that does not help does it sleep.
#[cold]
#[inline(never)]
fn lock_contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(not(tollgate_shuttle))]
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
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
