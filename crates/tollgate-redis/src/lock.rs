//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each change under a lock is one step, so that a poisoned one guards whole data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
