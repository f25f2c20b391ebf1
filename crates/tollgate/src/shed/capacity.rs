//! How much of the capacity is in use.

use std::sync::Arc;

use tollgate_core::RuleError;

use crate::{diagnostics::wrong_setting, shed::adaptive::AdaptiveLimit};

/// What a service can take, and how much of it is in use.
///
/// | capacity | in use | for |
/// | --- | --- | --- |
/// | [`adaptive`](Self::adaptive) | requests in flight, against a number that is found from latency | a start: nothing to configure |
/// | [`in_flight`](Self::in_flight) | requests in flight, against your number | a service whose limit is known, from a load test |
/// | [`measured`](Self::measured) | what your function says | processor time, the delay of tokio's workers, the depth of a queue |
///
/// A request is in flight from its arrival until its response body has ended or is dropped.
#[derive(Clone)]
#[must_use = "a capacity does nothing until a layer has it"]
pub struct Capacity(pub(super) Signal);

#[derive(Clone)]
pub(super) enum Signal {
    InFlight(usize),
    Adaptive(Arc<AdaptiveLimit>),
    Measured(Arc<dyn Fn() -> f64 + Send + Sync>),
}

impl Capacity {
    /// At most this many requests in flight, at least 1.
    ///
    /// One and a half times what the service works on at once keeps it busy, also where P3 is shed from 70 % on: six for four workers.
    /// Then a request waits for one other at most.
    ///
    /// # Errors
    ///
    /// 0, which would shed all that may be shed.
    pub fn in_flight(requests: usize) -> Result<Self, RuleError> {
        if requests == 0 {
            return Err(wrong_setting(
                "a capacity of 0 requests in flight would shed every request below P0: take at least 1",
            ));
        }
        Ok(Self(Signal::InFlight(requests)))
    }

    /// As many requests in flight as keep latency near to what it is without a queue: from 4 to 10 000, found while requests come.
    ///
    /// Latency is that of response heads, of responses below 500. Requests of very different latency hide a queue: give them
    /// layers of their own.
    pub fn adaptive() -> Self {
        Self(Signal::Adaptive(Arc::new(AdaptiveLimit::new(4, 10_000))))
    }

    /// As [`adaptive`](Self::adaptive), between these numbers.
    ///
    /// # Errors
    ///
    /// A `least` of 0, or above `most`.
    pub fn adaptive_within(least: usize, most: usize) -> Result<Self, RuleError> {
        if least == 0 || least > most {
            return Err(wrong_setting(format!(
                "an adaptive capacity cannot be found between {least} and {most}: take at least 1, and the smaller number first"
            )));
        }
        Ok(Self(Signal::Adaptive(Arc::new(AdaptiveLimit::new(
            least, most,
        )))))
    }

    /// A share that you measure: 0 is idle, 1 and more is full. Called for each request, so it should read a number and not make
    /// one. Not a number is 0.
    pub fn measured(share: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Signal::Measured(Arc::new(share)))
    }

    /// The requests in flight that are all of it.
    pub(super) fn limit(&self) -> Option<usize> {
        match &self.0 {
            Signal::InFlight(limit) => Some(*limit),
            Signal::Adaptive(limit) => Some(limit.get()),
            Signal::Measured(_) => None,
        }
    }
}

tollgate_core::debug_fields!(Capacity, it => limit: it.limit());
