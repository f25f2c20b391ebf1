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

    /// Whether it is time for another mark, and a request that was counted at `at` can have it.
    #[inline]
    pub(crate) fn is_due(&self, extensions: &Extensions, at: Tick) -> bool {
        self.marked.load(Ordering::Relaxed) != second(at) && !extensions.is_empty()
    }

    /// Marks a request if it is due. Returns whether it did.
    pub(crate) fn mark(&self, extensions: &mut Extensions, at: Tick) -> bool {
        let is_due = self.is_due(extensions, at);
        if !is_due || self.marked.swap(second(at), Ordering::Relaxed) == second(at) {
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

/// About a second; never 0.
fn second(at: Tick) -> u64 {
    (at >> 20) + 1
}
