//! Heartbeats: how many instances share the store, for their shares while it fails; which quotas they have, because two
//! quotas of one rule are two limits on one state; and how they write keys, because two secrets are two states of one client.

use std::{
    collections::BTreeSet,
    mem,
    num::NonZeroU32,
    sync::{Arc, LazyLock, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tollgate_core::{Clock, store::InstanceCount};

use crate::{
    connection::{command::Script, resp::Value},
    keys::{keys::Keys, keyspace::Partition},
    store::{
        binding::InUse,
        context::StoreContext,
        quotas::{self, QuotaConflicts, Quotas},
    },
};

static MEMBERS: LazyLock<Arc<Script>> =
    LazyLock::new(|| Arc::new(Script::new(include_str!("../../lua/members.lua"))));

/// How often an instance sends a heartbeat, give or take a fifth.
const INTERVAL: Duration = Duration::from_secs(5);

/// After a pause of more intervals between two counts nothing is known of the time in between: Redis may have been started anew.
const LONGEST_PAUSE: u32 = 3;

/// Until there was an answer it is tried more often: a service that has just started does not know how many it is one of.
const FIRST: Duration = Duration::from_millis(250);

/// The pause after the first count, so that processes which start together know of each other.
const SECOND: Duration = Duration::from_secs(1);

/// After this many missing heartbeats an instance is gone.
const GONE_AFTER: u32 = 3;

/// The quotas of more rules are not compared: Redis should not be kept busy with it.
const MOST_RULES: usize = 1_000;

/// What sends heartbeats.
pub(super) struct Heart {
    shared: Weak<StoreContext>,
    in_use: Arc<InUse>,
    instance: String,
    began: Instant,
    /// In milliseconds.
    gone_after: String,
    count: InstanceCount,
    conflicts: QuotaConflicts,
    /// Those that are reported.
    strangers: BTreeSet<KeyTags>,
}

impl Heart {
    /// With the quotas of the rule sets in use.
    pub(super) fn new(shared: &Arc<StoreContext>, in_use: &Arc<InUse>, instance: String) -> Self {
        Self {
            // It must not keep the store alive that ends it.
            shared: Arc::downgrade(shared),
            in_use: Arc::clone(in_use),
            instance,
            began: Instant::now(),
            gone_after: (INTERVAL * GONE_AFTER).as_millis().to_string(),
            count: InstanceCount::new(NonZeroU32::MIN).longest_pause(INTERVAL * LONGEST_PAUSE),
            conflicts: QuotaConflicts::default(),
            strangers: BTreeSet::new(),
        }
    }

    pub(super) async fn beat(mut self) {
        let mut pause = FIRST;
        let mut is_first = true;
        loop {
            sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            if self.is_counted(&shared).await {
                pause = match mem::take(&mut is_first) {
                    true => SECOND,
                    false => INTERVAL,
                };
                self.compare(&shared).await;
            }
        }
    }

    async fn is_counted(&mut self, shared: &StoreContext) -> bool {
        let key = shared.keyspace.name_of("instances");
        let args = [&*self.gone_after, "0", &*self.instance];
        let count = match shared.backend.run(&MEMBERS, &[&key], &args).await {
            Ok(Value::Integer(count)) => u32::try_from(count).ok(),
            Ok(_) => None,
            Err(error) => {
                shared.observer.background_failed(&error);
                None
            }
        };
        self.count
            .observe(count.unwrap_or(0), self.began.elapsed().as_micros() as u64);
        // What was last known stays known while Redis fails: that is when it is needed.
        if count.is_some() {
            let count = self.count.counted().get();
            // That of the permits.
            let now = Clock::system().now();
            for (_, cap) in &shared.caps {
                cap.share_among(count, now);
            }
            shared.instances.store(count, Ordering::Relaxed);
            shared.observer.instances(count);
        }
        count.is_some()
    }

    async fn compare(&mut self, shared: &StoreContext) {
        let mut own = Quotas::new();
        self.in_use.each_rule(|rule| {
            if own.len() < MOST_RULES {
                quotas::add(&mut own, rule);
            }
        });
        let tags = KeyTags::of(&shared.keyspace.keys, &shared.keyspace.partition);
        let members = own
            .iter()
            .flat_map(|(rule, quotas)| quotas.iter().map(|words| quotas::member(rule, words)));
        // No rule has this name.
        let said = quotas::member("", &tags.in_words());
        let members: Vec<_> = members.chain([said]).collect();
        let mut args = vec![&*self.gone_after, "1"];
        args.extend(members.iter().map(String::as_str));
        let key = shared.keyspace.name_of("quotas");
        let mut all = match shared.backend.run(&MEMBERS, &[&key], &args).await {
            Ok(Value::List(members)) => quotas::read(members.iter().filter_map(Value::text)),
            Ok(_) => return,
            Err(error) => return shared.observer.background_failed(&error),
        };
        let tagged = all.remove("").unwrap_or_default();
        self.compare_tags(shared, &tags, &tagged);
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

    fn compare_tags(&mut self, shared: &StoreContext, own: &KeyTags, all: &BTreeSet<String>) {
        let others = all.iter().filter_map(|words| KeyTags::read(words));
        let strangers: BTreeSet<_> = others.filter(|other| !other.meets(own)).collect();
        shared.observer.key_conflicts(strangers.len());
        for stranger in strangers.difference(&self.strangers) {
            let (here, elsewhere) = (own.in_words(), stranger.in_words());
            shared.observer.keys_differ(&here, &elsewhere);
        }
        self.strangers = strangers;
    }
}

// How instances of a namespace write the keys of clients: two that write them otherwise never meet on a state, and a client
// has a budget with each.

/// How one instance writes keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyTags {
    partition: String,
    /// A tag of the secret that states are written by.
    written: String,
    /// Tags of all secrets that states are found by.
    known: BTreeSet<String>,
}

impl KeyTags {
    pub(super) fn of(keys: &Keys, partition: &Partition) -> Self {
        let tags = keys.tags();
        Self {
            partition: partition.to_string(),
            written: tags.first().cloned().unwrap_or_default(),
            known: tags.into_iter().collect(),
        }
    }

    /// In words: the partition, the tag of the secret that states are written by, and the others.
    pub(super) fn in_words(&self) -> String {
        let others = self.known.iter().filter(|tag| **tag != self.written);
        let words = [&self.partition, &self.written].into_iter().chain(others);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Reads what an instance has said. What cannot be read was written by a version that says more.
    pub(super) fn read(words: &str) -> Option<Self> {
        let (partition, tags) = words.split_once(' ')?;
        let written = tags.split(' ').next()?;
        Some(Self {
            partition: partition.to_owned(),
            written: written.to_owned(),
            known: tags.split(' ').map(str::to_owned).collect(),
        })
    }

    /// Whether each of the two finds what the other writes. So do those of one step and the next, while a secret changes.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.partition == other.partition
            && self.known.contains(&other.written)
            && other.known.contains(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::secret::Secret;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32]).expect("32 bytes")
    }

    fn tags(keys: &Keys) -> KeyTags {
        KeyTags::of(keys, &Partition::One)
    }

    #[test]
    fn the_steps_of_a_change_meet_the_next_one_and_no_other() {
        let (old, new) = (|| secret(7), || secret(8));
        let steps = [
            Keys::hashed(old()),
            Keys::hashed(old()).next(new()).expect("another"),
            Keys::hashed(new()).previous(old()).expect("another"),
            Keys::hashed(new()),
        ];
        for (place, step) in steps.iter().enumerate() {
            for (other, second) in steps.iter().enumerate() {
                let meets = tags(step).meets(&tags(second));
                assert_eq!(meets, place.abs_diff(other) < 2, "{place} and {other}");
            }
        }
    }

    #[test]
    fn other_secrets_other_partitions_and_plain_keys_do_not_meet() {
        let hashed = Keys::hashed(secret(7));
        assert!(tags(&hashed).meets(&tags(&Keys::hashed(secret(7)))));
        for other in [Keys::hashed(secret(8)), Keys::plain()] {
            assert!(!tags(&hashed).meets(&tags(&other)));
        }
        for partition in [Partition::Key, Partition::ByRule("api".into())] {
            assert!(!tags(&hashed).meets(&KeyTags::of(&hashed, &partition)));
        }
    }

    #[test]
    fn what_is_said_is_read_as_it_was_said_and_shows_no_secret() {
        let keys = Keys::hashed(secret(7)).next(secret(8)).expect("another");
        for partition in [Partition::One, Partition::ByRule("per-tenant".into())] {
            let tags = KeyTags::of(&keys, &partition);
            assert_eq!(KeyTags::read(&tags.in_words()), Some(tags.clone()));
            assert!(tags.in_words().len() < 80, "{}", tags.in_words());
        }
        assert_eq!(KeyTags::read("one"), None);
    }
}
