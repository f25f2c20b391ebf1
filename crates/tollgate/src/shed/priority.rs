//! How important a request is.

use http::Method;

use crate::head::Head;

/// The class of a request: what is shed last, and what first.
///
/// A class is shed from a share of the capacity on, its threshold: see [`ShedLayer::thresholds`](crate::shed::ShedLayer::thresholds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Critical: never shed. Health checks, payments, what operators need.
    P0,
    /// From 90 % of the capacity on: writes, by default.
    P1,
    /// From 80 % on: reads (`GET`, `HEAD`, `OPTIONS`), by default.
    P2,
    /// From 70 % on: batches, prefetching, test traffic.
    P3,
}

impl Priority {
    /// All classes, the most important one first.
    pub const ALL: [Self; 4] = [Self::P0, Self::P1, Self::P2, Self::P3];

    /// Reads are P2, other requests P1.
    pub(super) fn by_method(head: &Head<'_>) -> Self {
        match *head.method {
            Method::GET | Method::HEAD | Method::OPTIONS => Self::P2,
            _ => Self::P1,
        }
    }

    /// From the value of a header field: `0` to `3`, also as `p0` or `P0`. Any other value is the lowest class.
    pub(super) fn of_value(value: &[u8]) -> Self {
        match value.trim_ascii() {
            b"0" | b"p0" | b"P0" => Self::P0,
            b"1" | b"p1" | b"P1" => Self::P1,
            b"2" | b"p2" | b"P2" => Self::P2,
            _ => Self::P3,
        }
    }

    /// Its name in metrics: `p0` to `p3`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::P0 => "p0",
            Self::P1 => "p1",
            Self::P2 => "p2",
            Self::P3 => "p3",
        }
    }
}
