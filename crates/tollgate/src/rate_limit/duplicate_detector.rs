//! Detecting that a request is counted by the same layer twice.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use http::Extensions;
use smallvec::SmallVec;
use tollgate_core::Tick;

use crate::head::Head;

/// Detects a layer that is applied twice, by sampling: it marks a request and checks whether the same rules count it again.
///
/// It marks about one request per second, and only requests that have extensions already, so that the others cost no allocation.
#[derive(Debug)]
pub(crate) struct DuplicateDetector {
    /// The version of the rule set.
    rules: u64,
    /// Whether a marked request is in flight.
    watching: AtomicBool,
    /// When the last request was marked, by the store's time.
    marked: AtomicU64,
}

/// The rule sets that have counted a request.
#[derive(Clone, Debug)]
struct CountedBy(SmallVec<[u64; 4]>);

impl DuplicateDetector {
    pub(crate) fn new(rules: u64) -> Arc<Self> {
        Arc::new(Self {
            rules,
            watching: AtomicBool::new(false),
            marked: AtomicU64::new(0),
        })
    }

    /// Whether these rules have counted the request already.
    #[inline]
    pub(crate) fn has_counted(&self, head: &Head<'_>) -> bool {
        self.watching.load(Ordering::Relaxed) && self.is_marked(head)
    }
    fn is_marked(&self, head: &Head<'_>) -> bool {
        let counted = head.extensions.get::<CountedBy>();
        counted.is_some_and(|counted| counted.0.contains(&self.rules))
    }

    /// Marks a request that was counted at `at` if it is time for another mark. Returns whether it did.
    #[inline]
    pub(crate) fn mark(&self, extensions: &mut Extensions, at: Tick) -> bool {
        // About a second; never 0.
        let second = (at >> 20) + 1;
        self.marked.load(Ordering::Relaxed) != second
            && !extensions.is_empty()
            && self.mark_first_of(second, extensions)
    }
    fn mark_first_of(&self, second: u64, extensions: &mut Extensions) -> bool {
        if self.marked.swap(second, Ordering::Relaxed) == second {
            return false;
        }
        self.watching.store(true, Ordering::Relaxed);
        match extensions.get_mut::<CountedBy>() {
            Some(counted) => counted.0.push(self.rules),
            None => {
                let counted = SmallVec::from_slice(&[self.rules]);
                extensions.insert(CountedBy(counted));
            }
        }
        true
    }

    /// A marked request has its response.
    pub(crate) fn on_response(&self) {
        self.watching.store(false, Ordering::Relaxed);
    }
}
