//! Locks and atomics of the whole crate, in one place so that a scheduler that explores interleavings sees them all.

use std::sync::PoisonError;
#[cfg(not(tollgate_shuttle))]
pub(crate) use std::sync::{
    RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize},
};

#[cfg(tollgate_shuttle)]
pub(crate) use shuttle::sync::{
    RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize},
};
pub(crate) use tollgate_core::sync::{
    AtomicU64, BriefGuard, BriefMutex, Mutex, MutexGuard, Ordering, lock, lock_briefly,
};

/// [`lock`], shared with other readers.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}
