//! The metrics of calls on their way.

use std::sync::OnceLock;

use metrics::{Counter, Histogram, Unit, counter, histogram};

use crate::connection::event::{CallEvent, Resent};

const ROUND_TRIP: &str = "tollgate_redis_round_trip_duration_seconds";
const QUEUE: &str = "tollgate_redis_queue_duration_seconds";
const RESENT: &str = "tollgate_redis_resent_total";

/// Handles are made at the first event, after the application has installed its recorder.
#[derive(Default)]
pub(super) struct TrafficMeters(OnceLock<Handles>);

struct Handles {
    round_trip: Histogram,
    queue: Histogram,
    with_script: Counter,
    alone: Counter,
    moved: Counter,
    ask: Counter,
}

impl TrafficMeters {
    fn handles(&self) -> &Handles {
        self.0.get_or_init(|| {
            describe();
            let resent = |why: &'static str| counter!(RESENT, "why" => why);
            Handles {
                round_trip: histogram!(ROUND_TRIP),
                queue: histogram!(QUEUE),
                with_script: resent("noscript"),
                alone: resent("alone"),
                moved: resent("moved"),
                ask: resent("ask"),
            }
        })
    }

    pub(super) fn count(&self, event: CallEvent) {
        let handles = self.handles();
        match event {
            CallEvent::Queued(waited) => handles.queue.record(waited),
            CallEvent::RoundTrip(took) => handles.round_trip.record(took),
            CallEvent::Resent(why) => match why {
                Resent::WithScript => &handles.with_script,
                Resent::Alone => &handles.alone,
                Resent::Moved => &handles.moved,
                Resent::AskRedirect => &handles.ask,
            }
            .increment(1),
        }
    }
}

fn describe() {
    metrics::describe_histogram!(
        ROUND_TRIP,
        Unit::Seconds,
        "From a command that is sent to its answer: the network and Redis, without the wait before"
    );
    metrics::describe_histogram!(
        QUEUE,
        Unit::Seconds,
        "How long the first call of each command has waited to be sent"
    );
    metrics::describe_counter!(
        RESENT,
        "Calls that had not run and were sent once more, by why"
    );
}

impl std::fmt::Debug for TrafficMeters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TrafficMeters(..)")
    }
}
