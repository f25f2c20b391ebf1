//! Whether one layer is applied to a request twice.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::Tick;

/// Marks one request now and then, to see whether it meets the same rules again. Cheap to clone; clones share everything.
///
/// A request is marked about once a second, and only where it has extensions already, so that nothing is allocated for those
/// in between.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The version of the rule set.
    rules: u64,
    /// Whether a marked request is under way.
    watching: AtomicBool,
    /// When a request was marked last, by the store's time.
    marked: AtomicU64,
}

/// The rule sets that a request was counted by.
#[derive(Clone, Debug)]
struct CountedBy(SmallVec<[u64; 4]>);

impl Applied {
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

    /// Whether these rules have counted the request before.
    #[inline]
    pub(crate) fn before(&self, head: &Parts) -> bool {
        self.shared.watching.load(Ordering::Relaxed) && self.is_marked(head)
    }

    #[cold]
    fn is_marked(&self, head: &Parts) -> bool {
        let counted = head.extensions.get::<CountedBy>();
        counted.is_some_and(|counted| counted.0.contains(&self.shared.rules))
    }

    /// Marks a request that was counted at `at`, or does not. Whether it did.
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

    /// A marked request was answered.
    #[cold]
    pub(crate) fn answered(&self) {
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
    fn one_request_of_a_second_is_marked_for_these_rules() {
        let (one, other) = (Applied::new(1), Applied::new(2));
        let (mut first, mut second) = (head(), head());
        assert!(!one.before(&first));
        assert!(one.mark(&mut first, 5));
        assert!(!one.mark(&mut second, 6));
        assert!(one.before(&first) && !one.before(&second) && !other.before(&first));
        // The other rules are on the watch as well, and have not seen it.
        assert!(other.mark(&mut head(), 5));
        assert!(!other.before(&first));
        assert!(other.mark(&mut first, 5 << 20));
        assert!(one.before(&first) && other.before(&first));
        one.answered();
        assert!(!one.before(&first), "nobody looks while nothing is marked");
        assert!(one.mark(&mut second, 5 << 20));
        assert!(one.before(&second));
    }

    #[test]
    fn a_request_without_extensions_is_not_given_any() {
        let (mut bare, ()) = http::Request::new(()).into_parts();
        assert!(!Applied::new(1).mark(&mut bare, 5));
        assert!(bare.extensions.is_empty());
    }
}
