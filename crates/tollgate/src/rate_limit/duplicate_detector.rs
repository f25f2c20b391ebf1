//! Detecting that a request is counted by the same layer twice.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::Tick;

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
    pub(crate) fn has_counted(&self, head: &Parts) -> bool {
        self.shared.watching.load(Ordering::Relaxed) && self.is_marked(head)
    }

    #[cold]
    fn is_marked(&self, head: &Parts) -> bool {
        let counted = head.extensions.get::<CountedBy>();
        counted.is_some_and(|counted| counted.0.contains(&self.shared.rules))
    }

    /// Marks a request that was counted at `at` if it is time for another mark. Returns whether it did.
    #[inline]
    pub(crate) fn mark(&self, head: &mut Parts, at: Tick) -> bool {
        // About a second; never 0.
        let second = (at >> 20) + 1;
        self.shared.marked.load(Ordering::Relaxed) != second
            && !head.extensions.is_empty()
            && self.mark_first_of(second, head)
    }

    #[cold]
    fn mark_first_of(&self, second: u64, head: &mut Parts) -> bool {
        if self.shared.marked.swap(second, Ordering::Relaxed) == second {
            return false;
        }
        self.shared.watching.store(true, Ordering::Relaxed);
        match head.extensions.get_mut::<CountedBy>() {
            Some(counted) => counted.0.push(self.shared.rules),
            None => {
                let counted = SmallVec::from_slice(&[self.shared.rules]);
                head.extensions.insert(CountedBy(counted));
            }
        }
        true
    }

    /// A marked request has its response.
    #[cold]
    pub(crate) fn on_response(&self) {
        self.shared.watching.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Parts {
        let (mut head, ()) = http::Request::new(()).into_parts();
        head.extensions.insert("peer");
        head
    }

    #[test]
    fn one_request_per_second_is_marked_for_these_rules() {
        let (one, other) = (DuplicateDetector::new(1), DuplicateDetector::new(2));
        let (mut first, mut second) = (head(), head());
        assert!(!one.has_counted(&first));
        assert!(one.mark(&mut first, 5));
        assert!(!one.mark(&mut second, 6));
        assert!(one.has_counted(&first) && !one.has_counted(&second) && !other.has_counted(&first));
        // The other rules sample as well, and have not counted it.
        assert!(other.mark(&mut head(), 5));
        assert!(!other.has_counted(&first));
        assert!(other.mark(&mut first, 5 << 20));
        assert!(one.has_counted(&first) && other.has_counted(&first));
        one.on_response();
        assert!(!one.has_counted(&first), "no mark is in flight");
        assert!(one.mark(&mut second, 5 << 20));
        assert!(one.has_counted(&second));
    }

    #[test]
    fn a_request_without_extensions_gets_none() {
        let (mut bare, ()) = http::Request::new(()).into_parts();
        assert!(!DuplicateDetector::new(1).mark(&mut bare, 5));
        assert!(bare.extensions.is_empty());
    }
}
