//! The store.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tollgate_core::{
    Rule, RuleError, RuleSet, Store,
    store::{RuleRegistry, RuleStore},
};
use tollgate_prefilter::Effective;

use crate::{
    connection::{
        breaker::BreakerState,
        command::Command,
        error::{CallErrorKind, with_remedy},
        supervisor::{LIFE, PROBE},
    },
    store::{
        context::StoreContext, redis_rule_store::RedisRuleStore, rule_set_context::InUse,
        sender::flush_all,
    },
};

/// Limits in Redis or Valkey, shared by every process that uses the same namespace there.
///
/// Cheap to clone; clones share the connection. It is closed when the last of them, and the last limiter and layer on
/// them, is dropped.
///
/// See the [module documentation](crate).
#[derive(Clone)]
pub struct RedisStore {
    pub(super) shared: Arc<StoreContext>,
    pub(super) in_use: Arc<InUse>,
    /// They end with the last store, limiter and layer.
    pub(super) tasks: Arc<JoinSet<()>>,
    pub(super) registry: RuleRegistry,
}

impl RedisStore {
    /// How many instances share the store, as Redis counts them; 0 until it has. The number rises at once, but falls only after Redis
    /// has counted fewer for half a minute: otherwise, after a restart of Redis without a disk, each instance would see itself alone.
    #[must_use]
    pub fn instances(&self) -> u32 {
        self.shared.instances()
    }

    /// How this store counts a rule: its own quota with plan number 0, or that of a plan. It is
    /// [`Exact`](Effective::Exact), with the reason, where the rule cannot have its consistency.
    ///
    /// ```
    /// use tollgate::{Consistency, MINUTE, Quota, Rule, store::LeaseShare};
    /// use tollgate_redis::{Effective, Keys, RedisStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder("unix:///nowhere", "shop", Keys::plain()).connect()?;
    /// let leased = Consistency::Leased { share: LeaseShare::percent(10) };
    /// let rule = |quota| Rule::new("per-key", quota).consistency(leased);
    /// assert!(matches!(store.effective(&rule(Quota::gcra(6_000, MINUTE)), 0), Effective::Leased(_)));
    /// let Effective::Exact(Some(why)) = store.effective(&rule(Quota::gcra(6, MINUTE)), 0) else {
    ///     panic!("it is too small");
    /// };
    /// assert!(why.contains("below 20"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn effective(&self, rule: &Rule, plan: usize) -> Effective {
        Effective::of(rule, plan, self.shared.exact(rule))
    }

    /// Waits until Redis decides every request: for a start that would rather wait than begin on the rules' answers to a store
    /// failure. It waits for ever if need be: [`connect_within`](crate::RedisStoreBuilder::connect_within) has an end, and gives
    /// the error.
    ///
    /// There is a connection then, and the [breaker](Self::breaker) is closed: where several attempts to connect have failed
    /// before, it keeps requests from a server until probes were answered. Why it waits is an event (feature `tracing`), after
    /// five seconds and then every ten, and [`connection_error`](Self::connection_error) says it at any time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn connected(&self) {
        const PAUSE: Duration = Duration::from_millis(5);
        const FIRST_EVENT: Duration = Duration::from_secs(5);
        const NEXT_EVENT: Duration = Duration::from_secs(10);
        let began = Instant::now();
        let mut event = began + FIRST_EVENT;
        while let Some(why) = self.connection_error() {
            sleep(PAUSE).await;
            let now = Instant::now();
            if now >= event {
                self.shared.observer.waits(now - began, &why);
                event = now + NEXT_EVENT;
            }
        }
    }

    /// Why Redis does not decide requests at present: the last failure to connect, or that the [breaker](Self::breaker) keeps
    /// requests from it. `None` while it does. In a cluster, of the first server with which something is wrong.
    #[must_use]
    pub fn connection_error(&self) -> Option<String> {
        self.shared.trouble()
    }

    /// Sends Redis all that this process has not sent yet, for an orderly end: it reports local usage, returns leases, and sends the
    /// refunds of tickets. It ends when Redis has replied to all of it, or after `within`. What Redis refuses meanwhile is retried.
    ///
    /// Returns how many admitted units Redis may not have counted: those that were not reported in time, and those of reports without
    /// a reply. It counts those of this store and all its clones.
    ///
    /// Call it when the service has stopped taking requests, before the runtime ends. Limiters and layers may still be there,
    /// or not: what they leave behind when they are dropped is waited for as well. While requests still arrive it takes all of
    /// `within`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tollgate_redis::{Keys, RedisStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder("unix:///nowhere", "shop", Keys::plain()).connect()?;
    /// // axum::serve(listener, app).with_graceful_shutdown(signal).await?;
    /// let unreported = store.flush(Duration::from_secs(1)).await;
    /// assert_eq!(unreported, 0, "nothing was let through");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// What was sent stays sent, and its replies are still processed. The rest is sent when it is due, as without this call.
    pub async fn flush(&self, within: Duration) -> u64 {
        flush_all(&self.in_use, &self.shared, within).await
    }

    /// Whether the circuit breaker keeps requests from Redis at present. With several servers, the state of the breaker that lets the
    /// fewest through.
    pub fn breaker(&self) -> BreakerState {
        let states = self.shared.backend.breakers().into_iter();
        states
            .map(|(_, state)| state)
            .min_by_key(BreakerState::share)
            .unwrap_or(BreakerState::Closed)
    }
}

impl Store for RedisStore {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        let (shared, tasks) = (Arc::clone(&self.shared), Arc::clone(&self.tasks));
        let bound = RedisRuleStore::new(shared, Some(tasks), rules)?;
        self.in_use.add(&bound.context);
        // Something may be due of it soon.
        self.shared.wake.notify_one();
        Ok(Arc::new(bound))
    }

    fn registry(&self) -> &RuleRegistry {
        &self.registry
    }
}

tollgate_core::debug_fields!(RedisStore, it => shared: it.shared);

// The first write of a start that would rather fail: whether the server would decide requests.

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the server takes a script that writes, as decisions do. `refusal` is what it last answered instead.
pub(super) async fn first_write(shared: &StoreContext, refusal: &mut Option<String>) {
    let key = shared.keyspace.name_of("probe:start");
    let probe = Command::new(&PROBE, &[&key], &["1", LIFE]);
    while let Err(error) = shared.run(probe.clone()).await {
        match error.kind() {
            // A server that is far away, or busy at this moment, refuses nothing.
            CallErrorKind::NoAnswer | CallErrorKind::NotSent | CallErrorKind::Overloaded => return,
            // What the server said is why the breaker is open, or the connection closed.
            _ if refusal.is_some() && !error.is_of_server() => {}
            _ => *refusal = Some(with_remedy(error.line())),
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tollgate_core::{
        Check, Consistency, Decision, HOUR, MINUTE, Quota, Retry, SECOND, Source, StoreErrorKind,
        Verdict,
        algorithm::{Assessment, Taken},
        store::{Fingerprint, Hold, ReservationStore, Reserved, RuleStore},
        sync::{Mutex, lock},
    };
    use tollgate_prefilter::{Begin, EngineEvent, Next, Reply, SlotKey, SlotTarget};

    use super::*;
    use crate::{
        connection::stream::memory,
        keys::keys::{Keys, Secret},
    };

    /// Five units of a key are not reported.
    fn with_unreported(store: &RedisStore) -> RedisRuleStore {
        let rule = Rule::new("rule", Quota::fixed_window(100, SECOND)).consistency(
            Consistency::Eventual {
                interval: Duration::from_millis(100),
                max_unreported: 10,
            },
        );
        let rules = RuleSet::new([rule]).expect("a valid rule");
        let shared = Arc::clone(&store.shared);
        let bound =
            RedisRuleStore::new(shared, None, Arc::new(rules)).expect("a store for the rule");
        let check = Check::new(0, Fingerprint::from_bits(7), 5);
        let now = bound.context.now();
        let Begin::Query(mut query) = bound.context.local.begin(&[check], u64::MAX, now) else {
            panic!("nothing is known of the key");
        };
        drop(store.shared.engine.fill(&mut query, now));
        let answer = Assessment::new(true, 50, 1_000_000, Retry::Now);
        let verdict = Verdict::new(0, 0, answer, Source::Store);
        let reply = Reply::new(Decision::new(now, [verdict], |_| true));
        let Next::Done(_, follow_up) = query.finish(Ok(reply), now) else {
            panic!("there is one rule");
        };
        assert!(follow_up.settle.is_empty() && follow_up.queries.is_empty());
        let decision = bound.acquire(&[check]).ready();
        assert!(decision.is_some_and(|decision| decision.is_allowed()));
        bound
    }

    fn reserved() -> Reserved {
        let check = Check::new(0, Fingerprint::from_bits(7), 1);
        Reserved {
            id: 1,
            holds: vec![Hold::of_store(check, Taken::new(0, 0))],
            slots: Vec::new(),
        }
    }

    /// Slots of as many keys are in use as fit into the set of a key: those with the same lower half.
    pub(in crate::store) fn fill_set_of(store: &RedisStore, rule: &str, check: &Check) {
        for other in 1..=32 {
            let key = SlotKey {
                key: Fingerprint::from_bits(check.key().bits() ^ other << 64),
                rule: rule.into(),
                place: None,
            };
            let (encoder, check) = (Arc::new(()), *check);
            let target = SlotTarget { encoder, check };
            let acquired = store.shared.engine.slots().acquire(&key, target, 1, 0);
            assert!(acquired.is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn units_that_a_dropped_limiter_cannot_report_are_lost_after_a_while() {
        let store = RedisStore::builder("unix:///nowhere", "gone", Keys::plain())
            .connect()
            .expect("a valid address and a runtime");
        let bound = with_unreported(&store);
        drop(bound);
        let lost = || store.shared.engine.counts()[EngineEvent::UnitLost as usize];
        // It goes on for a while.
        sleep(Duration::from_secs(3)).await;
        assert_eq!(lost(), 0);
        sleep(Duration::from_secs(3)).await;
        assert_eq!(lost(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_of_too_many_checks_takes_nothing_out_of_the_process() {
        let store = RedisStore::builder("unix:///nowhere", "gone", Keys::plain())
            .connect()
            .expect("a valid address and a runtime");
        let bound = with_unreported(&store);
        let unreported = || {
            let usage = store.shared.engine.usage(bound.context.now());
            usage.units_unreported
        };
        let checks = |count: u128| -> Vec<_> {
            let keys = (0..count).map(Fingerprint::from_bits);
            keys.map(|key| Check::new(0, key, 1)).collect()
        };
        for count in [6_554, 16_000] {
            let answer = bound.reset(&checks(count)).ready();
            let refused = answer.expect("at once").expect_err("they are too many");
            assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
            assert_eq!(unreported(), 5);
        }
        let failed = bound
            .reset(&checks(6_553))
            .await
            .expect_err("there is no connection");
        assert_eq!(failed.kind(), StoreErrorKind::Unavailable);
        assert_eq!(unreported(), 0);
    }

    #[tokio::test]
    async fn a_reservation_that_is_refused_waits_for_nothing() {
        let store = RedisStore::builder("unix:///nowhere", "gone", Keys::plain())
            .connect()
            .expect("a valid address and a runtime");
        let answer = with_unreported(&store).reserve(reserved(), MINUTE).ready();
        let refused = answer.expect("at once").expect_err("it has no secret");
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_without_a_text_is_taken_away_until_redis_says_that_it_is_gone() {
        let steps = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&steps);
        memory::play("/deaf", move |words| {
            let step = words.last().and_then(|word| word.chars().next());
            let mut seen = lock(&seen);
            seen.extend(step.filter(|step| "+-".contains(*step)));
            let answer = match seen.as_str() {
                "+-" => "-LOADING Redis is loading",
                "+--" => "*1\r\n:-1",
                _ => return String::new(),
            };
            format!("{answer}\r\n")
        });
        let secret = Secret::from_bytes([7; 32]).expect("long enough");
        let store = RedisStore::builder("unix:///deaf", "shop", Keys::hashed(secret))
            .without_heartbeats()
            .connect()
            .expect("a valid address and a runtime");
        store.connected().await;
        let rules = with_unreported(&store);
        let answer = rules.reserve(reserved(), MINUTE).await;
        let error = answer.expect_err("nothing is answered").kind();
        assert_eq!(error, StoreErrorKind::Timeout);
        // A pause after the first attempt is nothing that a flush waits for.
        sleep(Duration::from_millis(500)).await;
        assert_eq!(Arc::strong_count(&store.shared.in_flight), 1);
        sleep(HOUR).await;
        assert_eq!(*lock(&steps), "+--");
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        for (line, words) in [
            ("MOVED 866 127.0.0.1:7001", "redis-cluster://"),
            (
                "READONLY You can't write against a read only replica.",
                "redis-sentinel://",
            ),
            ("NOPERM this user has no permissions", "`redis`"),
        ] {
            let text = with_remedy(line);
            assert!(text.starts_with(line) && text.contains(words), "{text}");
        }
        assert_eq!(
            with_remedy("OOM command not allowed"),
            "OOM command not allowed"
        );
    }
}
