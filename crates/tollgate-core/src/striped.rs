//! What all threads would write together, once for each stripe of threads: a request writes no memory that other
//! processors write as well, except the state that it is about.
//!
//! For the crates of tollgate: not a part of the public interface.

use std::{
    cell::Cell,
    fmt,
    num::NonZero,
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// The most stripes. With more processors, a few threads share each.
const MOST: usize = 256;

/// The number of stripes: one per processor, rounded up to a power of two.
pub(super) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        processors.next_power_of_two().min(MOST)
    })
}

/// Of a thread that has not asked for its stripe yet.
const UNKNOWN: usize = usize::MAX;

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(UNKNOWN) };
}

/// The stripe of the current thread. Threads get their stripes in rotation, in the order of their first call: the workers of a
/// runtime have one each.
#[inline]
#[must_use]
pub fn current_stripe() -> usize {
    match STRIPE.get() {
        UNKNOWN => next(),
        stripe => stripe,
    }
}

fn next() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let stripe = THREADS.fetch_add(1, Ordering::Relaxed) & (count() - 1);
    STRIPE.set(stripe);
    stripe
}

// A value for each stripe.

/// A value for each stripe of threads, on cache lines of its own.
#[derive(Debug)]
pub struct PerStripe<T>(Box<[Line<T>]>);

/// Two lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

impl<T> PerStripe<T> {
    /// `make` gets the stripe.
    pub fn new(make: impl FnMut(usize) -> T) -> Self {
        Self((0..count()).map(make).map(Line).collect())
    }

    /// The value of the current thread's stripe.
    #[inline]
    #[must_use]
    pub fn here(&self) -> &T {
        &self.0[current_stripe()].0
    }

    /// The values of all stripes, in one order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.iter().map(|line| &line.0)
    }
}

// A handle that many threads clone.

/// A shared value, as in an [`Arc`], for services: a server clones them for each connection or request. A clone counts on the
/// stripe of the thread that makes it, so that no two processors write one count.
///
/// The first handle of a value is kept as it is (in a router, say) and owns a node for each stripe on which it is cloned. So
/// does a clone that is itself cloned on another stripe.
pub struct Handle<T>(Arc<Node<T>>);

/// The count of handles lies before it, on other lines than what their clones read.
#[repr(align(128))]
struct Node<T> {
    value: Arc<T>,
    /// The stripe whose threads count on this node; `None`: only its children are cloned.
    stripe: Option<usize>,
    children: OnceLock<PerStripe<OnceLock<Arc<Self>>>>,
}

impl<T> Handle<T> {
    /// The first handle of a value.
    pub fn new(value: Arc<T>) -> Self {
        Self(Arc::new(Node::new(value, None)))
    }
}

impl<T> Node<T> {
    fn new(value: Arc<T>, stripe: Option<usize>) -> Self {
        Self {
            value,
            stripe,
            children: OnceLock::new(),
        }
    }
}

impl<T> Clone for Handle<T> {
    #[inline]
    fn clone(&self) -> Self {
        let (node, here) = (&self.0, Some(current_stripe()));
        if node.stripe == here {
            return Self(Arc::clone(node));
        }
        let children = node
            .children
            .get_or_init(|| PerStripe::new(|_| OnceLock::new()));
        let child = children.here().get_or_init(|| {
            let value = Arc::clone(&node.value);
            Arc::new(Node::new(value, here))
        });
        Self(Arc::clone(child))
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_stripe_and_each_that_comes_gets_the_next() {
        assert_eq!(current_stripe(), current_stripe());
        // Threads of other tests come in between.
        let stripes: Vec<usize> = (0..1_000).map(|_| next()).collect();
        let follows = |pair: &&[usize]| pair[1] == (pair[0] + 1) & (count() - 1);
        assert!(stripes.windows(2).filter(follows).count() > 500);
        assert!(stripes.iter().all(|stripe| *stripe < count()));
    }

    #[test]
    fn clones_count_on_their_own_stripe_and_the_value_is_counted_once_for_each() {
        let value = Arc::new(7);
        let first = Handle::new(Arc::clone(&value));
        for stripe in 0..count() {
            let on_it = || {
                STRIPE.set(stripe);
                let clone = first.clone();
                assert_eq!(clone.0.stripe, Some(stripe));
                assert!(Arc::ptr_eq(&clone.0, &first.clone().0));
                assert!(
                    Arc::ptr_eq(&clone.0, &clone.clone().0),
                    "one node for the stripe"
                );
            };
            thread::scope(|scope| scope.spawn(on_it).join().expect("it does not panic"));
        }
        assert_eq!(Arc::strong_count(&first.0), 1, "nobody counts on the first");
        // The test, the first handle, and a node for each stripe.
        assert_eq!(Arc::strong_count(&value), 2 + count());
        drop(first);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
