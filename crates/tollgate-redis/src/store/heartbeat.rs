//! Heartbeats: how many instances share the store, for their shares while it fails; and which quotas they have, because two
//! quotas of one rule are two limits on one state.

use std::{
    sync::{Arc, LazyLock, Weak},
    time::Duration,
};

use tokio::{
    task::AbortHandle,
    time::{Instant, sleep},
};

use crate::{
    connection::{script::Script, value::Value},
    store::{
        flush::InUse,
        instances::InstanceCount,
        quotas::{self, QuotaConflicts, Quotas},
        shared::Shared,
    },
};

static COUNT: LazyLock<Arc<Script>> =
    LazyLock::new(|| Arc::new(Script::new(include_str!("../../lua/instances.lua"))));

static COMPARE: LazyLock<Arc<Script>> =
    LazyLock::new(|| Arc::new(Script::new(include_str!("../../lua/quotas.lua"))));

/// How often an instance is heard, give or take a fifth, unless something else is said.
const INTERVAL: Duration = Duration::from_secs(5);

/// Until there was an answer it is tried more often: a service that has just started does not know how many it is one of.
const FIRST: Duration = Duration::from_millis(250);

/// After so many of them an instance is gone.
const GONE_AFTER: u32 = 3;

/// The quotas of more rules are not compared: Redis should not be kept busy with it.
const MOST_RULES: usize = 1_000;

/// The task that is heard. Dropping this ends it.
#[derive(Debug)]
pub(super) struct Heartbeat(AbortHandle);

impl Heartbeat {
    /// Begins, with the quotas of the rule sets in use. Needs a tokio runtime.
    pub(super) fn start(
        shared: &Arc<Shared>,
        in_use: &Arc<InUse>,
        instance: String,
        interval: Option<Duration>,
    ) -> Self {
        let interval = interval.unwrap_or(INTERVAL);
        let heart = Heart {
            // It must not keep the store alive that ends it.
            shared: Arc::downgrade(shared),
            in_use: Arc::clone(in_use),
            instance,
            interval,
            gone_after: (interval * GONE_AFTER).as_millis().to_string(),
            count: InstanceCount::default(),
            conflicts: QuotaConflicts::default(),
        };
        Self(tokio::spawn(heart.beat()).abort_handle())
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Heart {
    shared: Weak<Shared>,
    in_use: Arc<InUse>,
    instance: String,
    interval: Duration,
    /// In milliseconds.
    gone_after: String,
    count: InstanceCount,
    conflicts: QuotaConflicts,
}

impl Heart {
    async fn beat(mut self) {
        let mut pause = FIRST.min(self.interval);
        loop {
            sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            if self.is_counted(&shared).await {
                pause = self.interval;
                self.compare_quotas(&shared).await;
            }
        }
    }

    async fn is_counted(&mut self, shared: &Shared) -> bool {
        let key = shared.keyspace.instances();
        let args = [&*self.instance, &*self.gone_after];
        let count = match shared.backend.run(&COUNT, &key, &args).await {
            Ok(Value::Integer(count)) => u32::try_from(count).ok(),
            Ok(_) => None,
            Err(error) => {
                shared.observer.heartbeat_failed(&error);
                None
            }
        };
        // What was last known stays known while Redis fails: that is when it is needed.
        match count {
            Some(count) => {
                let count = self.count.counted(count, Instant::now());
                shared.instances.set(count);
                shared.observer.instances(count);
                true
            }
            None => {
                self.count.miss();
                false
            }
        }
    }

    async fn compare_quotas(&mut self, shared: &Shared) {
        let mut own = Quotas::new();
        self.in_use.each_rule(|rule| {
            if own.len() < MOST_RULES {
                quotas::add(&mut own, rule);
            }
        });
        if own.is_empty() {
            return;
        }
        let members: Vec<_> = own
            .iter()
            .flat_map(|(rule, quotas)| quotas.iter().map(|words| quotas::member(rule, words)))
            .collect();
        let mut args = vec![&*self.gone_after];
        args.extend(members.iter().map(String::as_str));
        let key = shared.keyspace.quotas();
        let all = match shared.backend.run(&COMPARE, &key, &args).await {
            Ok(Value::List(members)) => quotas::read(members.iter().filter_map(Value::text)),
            Ok(_) => return,
            Err(error) => return shared.observer.heartbeat_failed(&error),
        };
        let (counts, lasting) = self.conflicts.compare(&own, &all, Instant::now());
        for (rule, others) in counts {
            shared.observer.quota_conflicts(&rule, others);
        }
        for conflict in lasting {
            let (here, elsewhere) = (&conflict.here, &conflict.elsewhere);
            let since = conflict.since;
            shared
                .observer
                .quotas_differ(&conflict.rule, here, elsewhere, since);
        }
    }
}
