//! The layer.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tollgate_core::{Clock, DAY, RuleError};
use tower_layer::Layer;

use crate::{
    diagnostics::wrong_setting,
    head::Head,
    protocol::Protocol,
    shed::{
        capacity::Capacity,
        observe::Observer,
        priority::{Priority, TrustedField},
        service::Shed,
        shedder::Shedder,
    },
};

/// Sheds requests while their service is short of capacity, the least important ones first.
///
/// Cheap to clone; clones share the count of requests in flight, and so do the services that they make.
///
/// See the [module documentation](crate::shed).
#[must_use = "a layer sheds nothing until a service is wrapped in it"]
#[derive(Clone, Debug)]
pub struct ShedLayer {
    shedder: Arc<ArcSwap<Shedder>>,
    fixed: Option<Priority>,
}

impl ShedLayer {
    /// Sheds by this capacity. Default: reads are P2, other requests P1.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            shedder: Arc::new(ArcSwap::from_pointee(Shedder::new(capacity))),
            fixed: None,
        }
    }

    /// The class of a request. Default: P2 for `GET`, `HEAD` and `OPTIONS`, P1 otherwise.
    pub fn priority(self, of: impl Fn(&Head<'_>) -> Priority + Send + Sync + 'static) -> Self {
        self.with(|shedder| shedder.priority = Arc::new(of))
    }

    /// Reads the class from this header field of requests from these peers, gateways and services of your own: `0` to `3`, or `p0` to `p3`. It
    /// comes before [`priority`](Self::priority). Another value, and a field that is there twice, is the lowest class.
    ///
    /// The peers are CIDRs, single addresses, or `unix:` for peers on a Unix socket. They have to set the field on each request, or to
    /// remove it: one that passes on what clients send lets each client choose its own class. In nginx,
    /// `proxy_set_header X-Priority "";` removes a field.
    ///
    /// ```
    /// use tollgate::shed::{Capacity, ShedLayer};
    ///
    /// let shed = || ShedLayer::new(Capacity::adaptive());
    /// assert!(shed().priority_header("x-priority", ["10.0.0.0/8"]).is_ok());
    /// assert!(shed().priority_header("x-priority", ["0.0.0.0/0"]).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// A name that no header field can have; no network; a text that is none; all addresses, because each client could choose its
    /// class.
    pub fn priority_header<N: ToString>(
        self,
        name: &str,
        peers: impl IntoIterator<Item = N>,
    ) -> Result<Self, RuleError> {
        let field = TrustedField::new(name, peers)?;
        Ok(self.with(|shedder| shedder.trusted_field = Some(field)))
    }

    /// Reads an id that the retries of a request keep from this header field of requests from these peers, as
    /// [`priority_header`](Self::priority_header) reads the class. A retry within the minute gets the answer of the first attempt
    /// while the load is the same, so that retries do not raise the share of requests that get through.
    ///
    /// # Errors
    ///
    /// As [`priority_header`](Self::priority_header).
    pub fn request_id_header<N: ToString>(
        self,
        name: &str,
        peers: impl IntoIterator<Item = N>,
    ) -> Result<Self, RuleError> {
        let field = TrustedField::new(name, peers)?;
        Ok(self.with(|shedder| shedder.request_id = Some(field)))
    }

    /// The same layer for a route whose requests all have this class: it shares capacity and settings.
    ///
    /// ```
    /// use tollgate::shed::{Capacity, Priority, ShedLayer};
    ///
    /// let shed = ShedLayer::new(Capacity::adaptive());
    /// let (health, search) = (shed.at(Priority::P0), shed.at(Priority::P3));
    /// # let _ = (health, search);
    /// ```
    pub fn at(&self, priority: Priority) -> Self {
        Self {
            shedder: Arc::clone(&self.shedder),
            fixed: Some(priority),
        }
    }

    /// The shares of the capacity from which on P1, P2 and P3 are shed. Default: 0.9, 0.8, 0.7. P0 is never shed.
    ///
    /// From its threshold on, a growing share of a class is shed; when the capacity is used up, all of it. Below the threshold none is.
    ///
    /// # Errors
    ///
    /// A share below 0 or above 1, or a class that would be shed before a less important one.
    pub fn thresholds(self, p1: f64, p2: f64, p3: f64) -> Result<Self, RuleError> {
        let is_share = |share: &f64| (0.0..=1.0).contains(share);
        if ![p1, p2, p3].iter().all(is_share) || p1 < p2 || p2 < p3 {
            return Err(wrong_setting(format!(
                "thresholds({p1}, {p2}, {p3}) are no shares of a capacity that fall from P1 to P3: take such as (0.9, 0.8, 0.7)"
            )));
        }
        Ok(self.with(|shedder| shedder.thresholds = [f64::INFINITY, p1, p2, p3]))
    }

    /// The shortest time in `Retry-After`; each answer has one between it and twice it, so that clients do not come back together.
    /// Default: two seconds; at most a day.
    pub fn retry_after(self, least: Duration) -> Self {
        self.with(|shedder| shedder.retry_after = least.min(DAY))
    }

    /// The protocol of the answers. Default: [`Protocol::Auto`], gRPC for a POST with a gRPC content type.
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.with(|shedder| shedder.protocol = protocol)
    }

    /// What metrics and events call the layer. Default: `service`.
    pub fn name(self, name: &str) -> Self {
        self.with(|shedder| shedder.observer = Observer::new(name))
    }

    /// The clock by which latency is measured and the share that is shed falls. Default: [`Clock::system`].
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        self.with(|shedder| shedder.clock = clock.into())
    }

    /// How many requests are in flight: admitted, with a response whose body has not ended.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.shedder
            .load()
            .in_flight
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Takes the settings and the capacity of another layer, in all clones and services of this one. Requests in flight stay
    /// counted.
    pub fn replace(&self, other: &Self) {
        let mut next = Shedder::clone(&other.shedder.load());
        next.in_flight = Arc::clone(&self.shedder.load().in_flight);
        self.shedder.store(Arc::new(next));
    }

    /// A layer of its own: the clones and services that are there already keep their settings.
    fn with(self, set: impl FnOnce(&mut Shedder)) -> Self {
        let mut shedder = Shedder::clone(&self.shedder.load());
        set(&mut shedder);
        Self {
            shedder: Arc::new(ArcSwap::from_pointee(shedder)),
            fixed: self.fixed,
        }
    }
}

impl<S> Layer<S> for ShedLayer {
    type Service = Shed<S>;

    fn layer(&self, inner: S) -> Shed<S> {
        Shed {
            inner,
            shedder: Arc::clone(&self.shedder),
            fixed: self.fixed,
        }
    }
}
