//! Which requests are shed: the load, what follows from it for each class, and the count of requests in flight.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tollgate_core::{Clock, Tick};

use crate::{
    head::Head,
    protocol::Protocol,
    rate_limit::admit::Place,
    shed::{
        capacity::{Capacity, Signal},
        observe::Observer,
        priority::{Priority, TrustedField},
    },
};

/// How long the pressure takes to fall from full to nothing.
const FALL: f64 = 2_000_000.0;
const MINUTE: Tick = 60_000_000;

/// The settings of a layer, its signal, and what it has seen of late.
#[derive(Clone)]
pub(super) struct Shedder {
    pub(super) capacity: Capacity,
    /// The share of the capacity from which on a class is shed. That of P0 is never reached.
    pub(super) thresholds: [f64; 4],
    pub(super) priority: Arc<dyn Fn(&Head<'_>) -> Priority + Send + Sync>,
    pub(super) trusted_field: Option<TrustedField>,
    pub(super) request_id: Option<TrustedField>,
    pub(super) retry_after: Duration,
    pub(super) protocol: Protocol,
    pub(super) clock: Clock,
    pub(super) observer: Observer,
    /// Also counted in the layers that take this one's place.
    pub(super) in_flight: Arc<AtomicUsize>,
    /// The time at which the load that was seen of late will have fallen to nothing, so that raising it is one atomic maximum. It rises
    /// at once and falls slowly, so that the share that is shed does not swing.
    pressure: Arc<AtomicU64>,
    secret: RandomState,
}

impl Shedder {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            thresholds: [f64::INFINITY, 0.9, 0.8, 0.7],
            priority: Arc::new(Priority::by_method),
            trusted_field: None,
            request_id: None,
            retry_after: Duration::from_secs(2),
            protocol: Protocol::Auto,
            clock: Clock::system(),
            observer: Observer::new("service"),
            in_flight: Arc::default(),
            pressure: Arc::default(),
            secret: RandomState::new(),
        }
    }

    /// A place for the request, or for how long its client should wait before a retry.
    pub(super) fn admit(
        self: &Arc<Self>,
        head: &Head<'_>,
        fixed: Option<Priority>,
    ) -> Result<InFlight, Duration> {
        let trusted = self.trusted_field.as_ref();
        let priority = fixed
            .or_else(|| trusted?.of(head))
            .unwrap_or_else(|| (self.priority)(head));
        let mut others = self.in_flight.load(Ordering::Relaxed);
        let mut drawn = None;
        let load = loop {
            let load = self.load(others);
            if priority != Priority::P0 && load >= self.thresholds[priority as usize] {
                let now = self.clock.now();
                // Once: one that another overtakes has no second chance to be shed.
                let hash = *drawn.get_or_insert_with(|| self.draw(head, now));
                // What decides says nothing of the jitter: those that are shed have small draws.
                let [draw, jitter] = [hash >> 32, hash & u64::from(u32::MAX)]
                    .map(|bits| bits as f64 / 2_f64.powi(32));
                if self.is_shed(priority, load, draw, now) {
                    self.observer.load(load, others + 1, &self.capacity);
                    self.observer.shed(priority, load);
                    return Err(self.retry_after.mul_f64(1.0 + jitter));
                }
            }
            // One that is shed is never counted: it would take the place of another.
            let counted = self.in_flight.compare_exchange_weak(
                others,
                others + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match counted {
                Ok(_) => break load,
                Err(changed) => others = changed,
            }
        };
        self.observer.load(load, others + 1, &self.capacity);
        Ok(InFlight {
            place: Some(Place(Arc::clone(&self.in_flight))),
            shedder: Arc::clone(self),
            others,
            began: matches!(self.capacity.0, Signal::Adaptive(_)).then(|| self.clock.now()),
        })
    }

    /// The share of the capacity that is in use, without this request.
    fn load(&self, in_flight: usize) -> f64 {
        let limit = match &self.capacity.0 {
            Signal::InFlight(limit) => *limit,
            Signal::Adaptive(limit) => limit.get(),
            Signal::Measured(share) => {
                let share = share();
                return match share.is_nan() {
                    true => 0.0,
                    false => share.clamp(0.0, 1e6),
                };
            }
        };
        in_flight as f64 / limit as f64
    }

    /// From the threshold to full, the share of a class that is shed grows with the pressure.
    fn is_shed(&self, priority: Priority, load: f64, draw: f64, now: Tick) -> bool {
        let gone_at = now.saturating_add((load.clamp(0.0, 1.0) * FALL) as Tick);
        let before = self.pressure.fetch_max(gone_at, Ordering::Relaxed);
        let pressure = (before.max(gone_at).saturating_sub(now) as f64 / FALL).min(1.0);
        let threshold = self.thresholds[priority as usize];
        load >= 1.0 || draw < (pressure - threshold) / (1.0 - threshold)
    }

    /// At random. The same for the retries of a request within a minute, where a trusted peer has given its id.
    fn draw(&self, head: &Head<'_>, now: Tick) -> u64 {
        match self.request_id.as_ref().and_then(|it| it.value(head)) {
            Some(id) => self.secret.hash_one((now / MINUTE, id)),
            None => RandomState::new().hash_one(()),
        }
    }
}

tollgate_core::debug_fields!(Shedder, it =>
    capacity: it.capacity, thresholds: it.thresholds, trusted_field: it.trusted_field, retry_after: it.retry_after, in_flight: it.in_flight
);

/// A request whose response is not there yet.
#[derive(Debug)]
pub(super) struct InFlight {
    place: Option<Place>,
    shedder: Arc<Shedder>,
    /// The other requests in flight when it began.
    others: usize,
    /// Where latency is measured.
    began: Option<Tick>,
}

impl InFlight {
    /// The response's head is there. The request keeps its place until its body has ended.
    pub(super) fn answered(mut self, is_served: bool) -> Option<Place> {
        self.measure(is_served);
        self.place.take()
    }

    fn measure(&mut self, is_served: bool) {
        if let (Some(began), Signal::Adaptive(limit)) =
            (self.began.take(), &self.shedder.capacity.0)
        {
            let now = self.shedder.clock.now();
            // One that failed, or whose client has left, took at least this long.
            limit.sample(now.saturating_sub(began), self.others + 1, now, is_served);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.measure(false);
    }
}
