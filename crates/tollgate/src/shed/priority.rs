//! How important a request is, and header fields that say it. They are read from trusted peers only: any client can send
//! `x-priority: 0`.

use http::{HeaderName, Method};
use tollgate_core::RuleError;

use crate::{
    diagnostics::wrong_setting,
    head::Head,
    key::{TrustedPeers, peer},
};

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

/// A field that only peers in some networks may set: gateways and services of your own.
#[derive(Clone, Debug)]
pub(super) struct TrustedField {
    name: HeaderName,
    peers: TrustedPeers,
}

impl TrustedField {
    pub(super) fn new<N: ToString>(
        name: &str,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, RuleError> {
        let name = name.parse().map_err(|_| {
            wrong_setting(format!(
                "{name:?} is no name of a header field: take one such as \"x-priority\""
            ))
        })?;
        let mut peers = TrustedPeers::default();
        for text in networks {
            peers.add(&text.to_string()).map_err(wrong_setting)?;
        }
        let wrong = match peers.everybody() {
            Some(everybody) => {
                format!("{everybody} is every client: each could choose its own answer")
            }
            None if peers.is_empty() => {
                "no peer is trusted, so the field would never be read".to_owned()
            }
            None => return Ok(Self { name, peers }),
        };
        Err(wrong_setting(format!(
            "{wrong}; name the networks of your gateways, \"10.0.0.0/8\" say"
        )))
    }

    /// The class that a trusted peer has given.
    pub(super) fn of(&self, head: &Head<'_>) -> Option<Priority> {
        let mut values = head.headers.get_all(&self.name).iter();
        let value = values.next().filter(|_| self.peers.trust(peer(head)))?;
        Some(match values.next() {
            None => Priority::of_value(value.as_bytes()),
            Some(_) => Priority::P3,
        })
    }

    /// The value that a trusted peer has given.
    pub(super) fn value<'a>(&self, head: &Head<'a>) -> Option<&'a [u8]> {
        let value = head.headers.get(&self.name)?;
        self.peers.trust(peer(head)).then(|| value.as_bytes())
    }
}
