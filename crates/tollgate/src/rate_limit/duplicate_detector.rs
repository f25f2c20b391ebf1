//! Detecting that a request is counted by the same layer twice.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use http::Extensions;
use smallvec::SmallVec;
use tollgate_core::Tick;

use crate::head::Head;

/// Detects a layer that is applied twice, by sampling: it thresholds a request and checks whether the same rules count it again.
/// Cheap to clone; clones share everything.
///
/// It thresholds about one request per second, and only requests that have extensions already, so that the others cost no allocation.
#[derive(Clone, Debug)]
pub(crate) struct DuplicateDetector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
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
    pub(crate) fn new(rules: u64) -> Self {
        let shared = Shared {
            rules,
            watching: AtomicBool::new(false),
            marked: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Whether these rules have counted the request already.
    #[inline]
    pub(crate) fn has_counted(&self, head: &Head<'_>) -> bool {
        self.shared.watching.load(Ordering::Relaxed) && self.is_marked(head)
    }
    fn is_marked(&self, head: &Head<'_>) -> bool {
        let counted = head.extensions.get::<CountedBy>();
        counted.is_some_and(|counted| counted.0.contains(&self.shared.rules))
    }

    /// Marks a request that was counted at `at` if it is time for another mark. Returns whether it did.
    #[inline]
    pub(crate) fn mark(&self, extensions: &mut Extensions, at: Tick) -> bool {
        // About a second; never 0.
        let second = (at >> 20) + 1;
        self.shared.marked.load(Ordering::Relaxed) != second
            && !extensions.is_empty()
            && self.mark_first_of(second, extensions)
    }
    fn mark_first_of(&self, second: u64, extensions: &mut Extensions) -> bool {
        if self.shared.marked.swap(second, Ordering::Relaxed) == second {
            return false;
        }
        self.shared.watching.store(true, Ordering::Relaxed);
        match extensions.get_mut::<CountedBy>() {
            Some(counted) => counted.0.push(self.shared.rules),
            None => {
                let counted = SmallVec::from_slice(&[self.shared.rules]);
                extensions.insert(CountedBy(counted));
            }
        }
        true
    }

    /// A marked request has its response.
    pub(crate) fn on_response(&self) {
        self.shared.watching.store(false, Ordering::Relaxed);
    }
}
