//! A handle that many threads clone.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use crate::striped::{per_stripe::PerStripe, stripe};

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
    #[must_use]
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
        let (node, here) = (&self.0, Some(stripe::current()));
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
    fn clones_count_on_their_own_stripe_and_the_value_is_counted_once_for_each() {
        let value = Arc::new(7);
        let first = Handle::new(Arc::clone(&value));
        stripe::on_each(|| {
            let clone = first.clone();
            assert_eq!(clone.0.stripe, Some(stripe::current()));
            assert!(Arc::ptr_eq(&clone.0, &first.clone().0));
            assert!(
                Arc::ptr_eq(&clone.0, &clone.clone().0),
                "one node for the stripe"
            );
        });
        assert_eq!(Arc::strong_count(&first.0), 1, "nobody counts on the first");
        // The test, the first handle, and a node for each stripe.
        assert_eq!(Arc::strong_count(&value), 2 + stripe::count());
        drop(first);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
