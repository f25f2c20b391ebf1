//! A value for each stripe.

use crate::striped::stripe;

/// A value for each stripe of threads, on cache lines of its own.
#[derive(Debug)]
pub struct PerStripe<T>(Box<[Line<T>]>);

/// Two lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

impl<T> PerStripe<T> {
    /// `make` gets the stripe.
    #[must_use]
    pub fn new(make: impl FnMut(usize) -> T) -> Self {
        Self((0..stripe::count()).map(make).map(Line).collect())
    }

    /// The value of the current thread's stripe.
    #[inline]
    #[must_use]
    pub fn here(&self) -> &T {
        &self.0[stripe::current()].0
    }

    /// The values of all stripes, in one order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.iter().map(|line| &line.0)
    }
}
