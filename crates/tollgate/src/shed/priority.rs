//! How important a request is, and header fields that say it. They are read from trusted peers only: any client can send
//! `x-priority: 0`.

use http::{HeaderName, Method};
use tollgate_core::RuleError;

use crate::{
    head::Head,
    key::{TrustedPeers, peer},
    shed::capacity::wrong_setting,
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

/// What peers in these networks say of a request: gateways and services of your own.
///
/// ```
/// use tollgate::shed::TrustedHeaders;
///
/// let headers = TrustedHeaders::from(["10.0.0.0/8"])?.priority("x-priority")?.request_id("x-request-id")?;
/// # let _ = headers;
/// assert!(TrustedHeaders::from(["0.0.0.0/0"]).is_err());
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "the fields are read once a layer has them"]
pub struct TrustedHeaders {
    peers: TrustedPeers,
    priority: Option<HeaderName>,
    request_id: Option<HeaderName>,
}

impl TrustedHeaders {
    /// Trusts peers with these addresses: CIDRs, single addresses, or `unix:` for peers on a Unix socket. Nothing is read before a
    /// field is named.
    ///
    /// A gateway has to set the fields on each request, or to remove them: one that passes on what clients send lets each client choose its
    /// own class. In nginx, `proxy_set_header X-Priority "";` removes a field and `proxy_set_header X-Request-Id $request_id;` sets one.
    ///
    /// # Errors
    ///
    /// No network; a text that is none; all addresses, because each client could choose its class.
    pub fn from<N: ToString>(networks: impl IntoIterator<Item = N>) -> Result<Self, RuleError> {
        let mut peers = TrustedPeers::default();
        for text in networks {
            peers.add(&text.to_string()).map_err(wrong_setting)?;
        }
        if peers.is_empty() {
            return Err(wrong_setting(
                "no peer is trusted, so no field would ever be read: name the networks of your gateways, \"10.0.0.0/8\" say",
            ));
        }
        if let Some(everybody) = peers.everybody() {
            return Err(wrong_setting(format!(
                "{everybody} is every client: each could choose its own class; name the networks of your gateways, \"10.0.0.0/8\" say"
            )));
        }
        Ok(Self {
            peers,
            priority: None,
            request_id: None,
        })
    }

    /// The field with the class: `0` to `3`, or `p0` to `p3`. Another value, and a field that is there twice, is the lowest class;
    /// a request without the field has the class that it has without trusted headers.
    ///
    /// # Errors
    ///
    /// A name that no header field can have.
    pub fn priority(mut self, name: &str) -> Result<Self, RuleError> {
        self.priority = Some(field(name)?);
        Ok(self)
    }

    /// The field with an id that the retries of a request keep. A retry within the minute gets the answer of the first attempt
    /// while the load is the same, so that retries do not raise the share of requests that get through.
    ///
    /// # Errors
    ///
    /// A name that no header field can have.
    pub fn request_id(mut self, name: &str) -> Result<Self, RuleError> {
        self.request_id = Some(field(name)?);
        Ok(self)
    }

    /// The class that a trusted peer has given.
    pub(super) fn priority_of(&self, head: &Head<'_>) -> Option<Priority> {
        let mut values = head.headers.get_all(self.priority.as_ref()?).iter();
        let value = values.next().filter(|_| self.peers.trust(peer(head)))?;
        Some(match values.next() {
            None => Priority::of_value(value.as_bytes()),
            Some(_) => Priority::P3,
        })
    }

    /// The id that a trusted peer has given.
    pub(super) fn request_id_of<'a>(&self, head: Head<'a>) -> Option<&'a [u8]> {
        let value = head.headers.get(self.request_id.as_ref()?)?;
        self.peers.trust(peer(&head)).then(|| value.as_bytes())
    }
}

fn field(name: &str) -> Result<HeaderName, RuleError> {
    name.parse().map_err(|_| {
        wrong_setting(format!(
            "{name:?} is no name of a header field: take one such as \"x-priority\""
        ))
    })
}
