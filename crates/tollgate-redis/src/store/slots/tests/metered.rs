//! What the metrics say of slots.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, LocalRecorderGuard, Metadata, Recorder, SharedString,
    Unit, set_default_local_recorder,
};

use super::*;
use crate::{connection::options::NodeEvent, observe::Observer};

/// The metrics of a thread, by their names and labels: counts, and the bits of gauges.
#[derive(Default)]
struct Recorded(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Recorded {
    /// Records from now on, in this thread.
    fn start() -> (&'static Self, LocalRecorderGuard<'static>) {
        // The guard needs one that stays, and the process of a test ends soon.
        let recorded: &Self = Box::leak(Box::default());
        (recorded, set_default_local_recorder(recorded))
    }

    fn of(&self, key: &Key) -> Arc<AtomicU64> {
        let labels = key
            .labels()
            .map(|it| format!(",{}={}", it.key(), it.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }

    fn count(&self, name: &str) -> u64 {
        let all = self.0.lock().unwrap();
        let found = all
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {all:?}"));
        found.load(Ordering::Relaxed)
    }

    fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.count(name))
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A third of the term, after which slots in use are reported again.
const THIRD: Duration = Duration::from_secs(5);

/// Lets this time pass for Redis and for the process, until the gauges are up to date again.
async fn pass(clock: &ManualClock, time: Duration) {
    clock.advance(time);
    sleep(time + SECOND + Duration::from_millis(1)).await;
}

#[test]
fn a_server_that_has_left_a_cluster_alarms_nobody() {
    let (recorded, _guard) = Recorded::start();
    let observer = Observer::default();
    let (why, was_idle) = ("it ended".into(), false);
    for event in [NodeEvent::Lost { why, was_idle }, NodeEvent::Left] {
        observer.node("a:1", &event);
    }
    let connected = recorded.gauge("tollgate_redis_connected,node=a:1");
    assert!(connected.is_nan(), "{connected}");
}

#[tokio::test(start_paused = true)]
async fn slots_in_use_and_what_is_reported_of_them_are_counted_once() {
    const IN_USE: &str = "tollgate_redis_slots_in_use";
    let (recorded, _guard) = Recorded::start();
    let clock = ManualClock::new(NOW);
    let redis = Redis::start(granted(1));
    let (store, limiter) = limiter_by(&clock, [exact("a", 9)]).await;
    let mut tickets = Vec::new();
    for key in ["acme", "globex"] {
        let check = check(&limiter, "a", key).with_cost(2);
        tickets.push(start(&limiter, &[check]).await);
    }
    pass(&clock, THIRD).await;
    assert_eq!(recorded.gauge(IN_USE), 4.0);
    let slots = |what: &str| recorded.count(&format!("tollgate_redis_slots_total,what={what}"));
    // All but the two messages of requests.
    let by_itself = || redis.heard() as u64 - 2;
    assert_eq!(slots("reported"), by_itself());
    assert_eq!((slots("voided"), slots("outlived")), (0, 0));
    // Redis does not know them any more.
    redis.answers([-5, 8, !15_000_000]);
    pass(&clock, THIRD).await;
    redis.answers(granted(1));
    pass(&clock, THIRD).await;
    assert_eq!(slots("outlived"), 2);
    redis.answers(granted(0));
    drop(tickets);
    assert!(flushed(&store).await < THIRD);
    for _ in 0..3 {
        pass(&clock, THIRD).await;
    }
    assert_eq!(recorded.gauge(IN_USE), 0.0);
    assert_eq!(slots("reported"), by_itself());
    assert_eq!((slots("voided"), slots("outlived")), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_slot_goes_back_where_another_one_of_its_request_is_acquired_again() {
    let (recorded, _guard) = Recorded::start();
    let clock = ManualClock::new(NOW);
    let redis = Redis::start(granted(0));
    // A later message about the second one came first.
    redis.says(|number| match number {
        1 => [1, 0, 15_000_000],
        _ => granted(number),
    });
    let (store, limiter) = limiter_by(&clock, [exact("a", 9), exact("b", 9)]).await;
    let both = ["a", "b"].map(|rule| check(&limiter, rule, "acme"));
    let ticket = start(&limiter, &both).await;
    pass(&clock, THIRD).await;
    let in_use = || recorded.gauge("tollgate_redis_slots_in_use");
    assert_eq!(in_use(), 2.0);
    redis.answers(granted(0));
    drop(ticket);
    assert!(flushed(&store).await < THIRD);
    pass(&clock, THIRD).await;
    assert_eq!(in_use(), 0.0);
}
