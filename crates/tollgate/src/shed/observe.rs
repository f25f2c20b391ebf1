//! What operators see of a shedder.

use std::sync::Arc;

use crate::shed::{capacity::Capacity, priority::Priority};

#[derive(Clone)]
pub(super) struct Observer {
    name: Arc<str>,
    #[cfg(feature = "metrics")]
    meters: Arc<std::sync::OnceLock<Meters>>,
}

impl Observer {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            #[cfg(feature = "metrics")]
            meters: Arc::default(),
        }
    }

    /// A request has come.
    pub(super) fn load(&self, load: f64, in_flight: usize, capacity: &Capacity) {
        // Handles are made with the first request: those made before the application has installed its recorder would never count.
        #[cfg(feature = "metrics")]
        {
            let new = || Meters::new(&self.name, capacity);
            let meters = self.meters.get_or_init(new);
            meters.load.set(load);
            meters.in_flight.set(in_flight as f64);
            if let (Some(gauge), Some(limit)) = (&meters.limit, capacity.limit()) {
                gauge.set(limit as f64);
            }
        }
        let _ = (load, in_flight, capacity);
    }

    /// A request was shed.
    pub(super) fn shed(&self, priority: Priority, load: f64) {
        #[cfg(feature = "metrics")]
        if let Some(meters) = self.meters.get() {
            meters.shed[priority as usize].increment(1);
        }
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "tollgate", layer = &*self.name, priority = priority.name(), load, "request shed");
        let _ = (priority, load, &self.name);
    }
}

#[cfg(feature = "metrics")]
struct Meters {
    shed: [metrics::Counter; 4],
    load: metrics::Gauge,
    in_flight: metrics::Gauge,
    /// Of a capacity in requests.
    limit: Option<metrics::Gauge>,
}

#[cfg(feature = "metrics")]
tollgate_core::metric_names! {
    counter SHED "tollgate_shed_requests_total" "Requests that were shed, by class."
    gauge LOAD "tollgate_shed_load" "The share of the capacity in use when the last request came; 1 is all of it."
    gauge IN_FLIGHT "tollgate_shed_requests_in_flight" "Requests whose response body has not ended, when the last one came."
    gauge LIMIT "tollgate_shed_limit" "Requests in flight that are the whole capacity, configured or found."
}

#[cfg(feature = "metrics")]
impl Meters {
    fn new(name: &Arc<str>, capacity: &Capacity) -> Self {
        use metrics::{counter, gauge};

        describe();
        let of_layer = |metric: &'static str| gauge!(metric, "layer" => Arc::clone(name));
        Self {
            shed: Priority::ALL.map(
                |class| counter!(SHED, "layer" => Arc::clone(name), "priority" => class.name()),
            ),
            load: of_layer(LOAD),
            in_flight: of_layer(IN_FLIGHT),
            limit: capacity.limit().map(|_| of_layer(LIMIT)),
        }
    }
}
