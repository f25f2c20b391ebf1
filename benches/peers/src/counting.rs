//! The system's allocator, which counts while it is asked to.
//!
//! While it is not, an allocation costs one load more, on both sides of a comparison alike.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ON: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

struct Counting;

impl Counting {
    fn count(allocated: usize, freed: usize) {
        if ON.load(Relaxed) {
            ALLOCATIONS.fetch_add(u64::from(allocated > 0), Relaxed);
            ALLOCATED.fetch_add(allocated as u64, Relaxed);
            FREED.fetch_add(freed as u64, Relaxed);
        }
    }
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count(size, layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::count(0, layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What was allocated while something ran, in all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Calls of the allocator that gave memory.
    pub(crate) allocations: u64,
    /// Bytes that were asked for and not given back.
    pub(crate) held: u64,
}

/// Runs something, and counts.
pub(crate) fn count<T>(run: impl FnOnce() -> T) -> (T, Counted) {
    let before = [&ALLOCATIONS, &ALLOCATED, &FREED].map(|counter| counter.load(Relaxed));
    ON.store(true, Relaxed);
    let value = run();
    ON.store(false, Relaxed);
    let after = [&ALLOCATIONS, &ALLOCATED, &FREED].map(|counter| counter.load(Relaxed));
    let [allocations, allocated, freed] = std::array::from_fn(|i| after[i] - before[i]);
    let counted = Counted {
        allocations,
        held: allocated.saturating_sub(freed),
    };
    (value, counted)
}
