//! Heartbeats: how many instances share the store, for their shares while it fails; which quotas they have, because two
//! quotas of one rule are two limits on one state; and how they write keys, because two secrets are two states of one client.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    num::NonZeroU32,
    slice,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tollgate_core::{AlgorithmKind, Mode, Quota, Rule, store::InstanceCount, wall_clock};

use crate::{
    connection::{command::Script, resp::Value},
    keys::{keys::Keys, keyspace::Partition},
    store::{context::StoreContext, rule_set_context::InUse},
};

static MEMBERS: Script = Script::new(include_str!("../../lua/members.lua"));

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

/// Sends heartbeats with the quotas of the rule sets in use, until the store ends it.
pub(super) async fn send_heartbeats(
    shared: Arc<StoreContext>,
    in_use: Arc<InUse>,
    instance: String,
) {
    let began = Instant::now();
    let mut count = InstanceCount::new(NonZeroU32::MIN).longest_pause(INTERVAL * LONGEST_PAUSE);
    let mut differences = Differences::default();
    let mut pause = FIRST;
    loop {
        sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
        let heard = match say(&shared, "instances", "0", slice::from_ref(&instance)).await {
            Some(Value::Integer(heard)) => u32::try_from(heard).ok(),
            _ => None,
        };
        count.observe(heard.unwrap_or(0), began.elapsed().as_micros() as u64);
        // What was last known stays known while Redis fails: that is when it is needed.
        if heard.is_some() {
            let count = count.counted().get();
            // That of the permits.
            let now = wall_clock();
            for (_, cap) in &shared.caps {
                cap.share_among(count, now);
            }
            shared.instances.store(count, Ordering::Relaxed);
            shared.observer.instances(count);
            pause = if pause == FIRST { SECOND } else { INTERVAL };
            differences.look(&shared, &in_use).await;
        }
    }
}

/// Adds members to a set of those that were heard of lately. Gives how many there are, or which if `what` is 1.
async fn say(shared: &StoreContext, set: &str, what: &str, members: &[String]) -> Option<Value> {
    let gone_after = (INTERVAL * GONE_AFTER).as_millis().to_string();
    let mut args = vec![&*gone_after, what];
    args.extend(members.iter().map(String::as_str));
    let key = shared.keyspace.name_of(set);
    shared.run_in_background(&MEMBERS, &[&key], &args).await
}

/// What is known of how other instances differ from this one.
#[derive(Default)]
struct Differences {
    quotas: QuotaConflicts,
    /// Those that are reported.
    strangers: BTreeSet<String>,
}

impl Differences {
    async fn look(&mut self, shared: &StoreContext, in_use: &InUse) {
        let mut own = Quotas::new();
        for context in in_use.all() {
            for rule in context.rules.given() {
                if own.len() < MOST_RULES {
                    add_quotas(&mut own, rule);
                }
            }
        }
        let tags = key_tags(&shared.keyspace.keys, &shared.keyspace.partition);
        let members = own
            .iter()
            .flat_map(|(rule, quotas)| quotas.iter().map(|words| member(rule, words)));
        // No rule has this name.
        let members: Vec<_> = members.chain([member("", &tags)]).collect();
        let Some(Value::List(members)) = say(shared, "quotas", "1", &members).await else {
            return;
        };
        let mut all = read_quotas(members.iter().filter_map(Value::text));
        let tagged = all.remove("").unwrap_or_default();
        let strangers = tagged.into_iter().filter(|other| !meet(&tags, other));
        let strangers: BTreeSet<_> = strangers.collect();
        let new = strangers.difference(&self.strangers);
        shared.observer.key_conflicts(strangers.len(), &tags, new);
        self.strangers = strangers;
        for (rule, others, lasting) in self.quotas.compare(&own, &all, Instant::now()) {
            shared.observer.quota_conflicts(rule, others, lasting);
        }
    }
}

// How instances of a namespace write the keys of clients: two that write them otherwise never meet on a state, and a client
// has a budget with each.

/// How an instance says that it writes keys: its partition, a tag of the secret that states are written by, and those of others that they
/// are found by.
fn key_tags(keys: &Keys, partition: &Partition) -> String {
    [vec![partition.to_string()], keys.tags()]
        .concat()
        .join(" ")
}

/// Whether each of the two finds what the other writes. So do those of one step and the next, while a secret changes. What cannot be read
/// was written by a version that says more.
fn meet(here: &str, there: &str) -> bool {
    let [here, there] = [here, there].map(|words| words.split(' ').collect::<Vec<_>>());
    match (&here[..], &there[..]) {
        ([partition, own, ..], [other, theirs, ..]) => {
            partition == other && here.contains(theirs) && there.contains(own)
        }
        _ => true,
    }
}

// Which quotas instances have for one rule: what an instance says of its own, and what it makes of those of others.

/// How long instances may differ: a new version of a service replaces an old one.
const DEPLOYMENT: Duration = Duration::from_secs(600);

/// The quotas of rules, by name, in words.
pub(super) type Quotas = BTreeMap<String, BTreeSet<String>>;

/// Rules that other instances have with other quotas, and since when; `None` once that was told.
#[derive(Debug, Default)]
pub(super) struct QuotaConflicts(BTreeMap<String, Option<Instant>>);

impl QuotaConflicts {
    /// Compares the quotas of this instance with all that there are. Gives for each rule of this instance how many others
    /// there are, and once they have lasted for as long as a deployment the quotas here and elsewhere.
    pub(super) fn compare<'a>(
        &mut self,
        own: &'a Quotas,
        all: &Quotas,
        now: Instant,
    ) -> Vec<(&'a str, usize, Option<[String; 2]>)> {
        self.0.retain(|rule, _| own.contains_key(rule));
        let compared = own.iter().map(|(rule, here)| {
            let others = all.get(rule).map(|all| all.difference(here));
            let others: Vec<_> = others.into_iter().flatten().map(String::as_str).collect();
            if others.is_empty() {
                self.0.remove(rule);
                return (&**rule, 0, None);
            }
            let since = self.0.entry(rule.clone()).or_insert(Some(now));
            let lasting = since
                .take_if(|since| now.duration_since(*since) >= DEPLOYMENT)
                .map(|_| {
                    let here: Vec<_> = here.iter().map(String::as_str).collect();
                    [here.join(" and "), others.join(" and ")]
                });
            (&**rule, others.len(), lasting)
        });
        compared.collect()
    }
}

/// Adds the quotas of a rule, if it has states of its own that it counts against.
pub(super) fn add_quotas(quotas: &mut Quotas, rule: &Rule) {
    if matches!(rule.mode(), Mode::Enforce | Mode::Shadow) {
        let names = quotas.entry(rule.name().to_owned()).or_default();
        names.insert(in_words(rule));
    }
}

/// A member of the set in Redis.
pub(super) fn member(rule: &str, quotas: &str) -> String {
    format!("{rule}\n{quotas}")
}

/// Reads the members of the set in Redis. What cannot be read was written by a version that says more.
pub(super) fn read_quotas<'a>(members: impl IntoIterator<Item = &'a str>) -> Quotas {
    let mut quotas = Quotas::new();
    for (rule, words) in members.into_iter().filter_map(|it| it.split_once('\n')) {
        let names = quotas.entry(rule.to_owned()).or_default();
        names.insert(words.to_owned());
    }
    quotas
}

/// All quotas of a rule in words, the same in each version: what states lie by is compared by them.
fn in_words(rule: &Rule) -> String {
    let mut words = quota_in_words(rule.quota());
    let mut plans: Vec<_> = (1..rule.quotas())
        .map(|plan| (rule.plan_name(plan).unwrap_or_default(), plan))
        .collect();
    plans.sort_unstable();
    for (name, plan) in plans {
        // Writing to a string does not fail.
        let _ = write!(words, ", {name} {}", quota_in_words(rule.quota_of(plan)));
    }
    words
}

fn quota_in_words(quota: &Quota) -> String {
    let (limit, rate, period) = (quota.limit(), quota.rate(), quota.period());
    match quota.algorithm() {
        algorithm if !quota.has_state() => algorithm.name().to_owned(),
        _ if quota.calendar_of().is_some() => quota.to_string(),
        // Three names of one state.
        algorithm if algorithm.is_bucket() => {
            format!("bucket({rate} per {period:?}, {limit} at once)")
        }
        AlgorithmKind::SlidingBuckets => {
            let buckets = quota.bucket_count();
            format!("sliding_buckets({limit} per {period:?}, {buckets} buckets)")
        }
        // For how long they are held typically is not a part of the state.
        AlgorithmKind::Concurrent => format!("concurrent({limit})"),
        window => format!("{window}({limit} per {period:?})"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tollgate_core::{HOUR, MINUTE, SECOND};

    use super::*;
    use crate::{connection::stream::memory, keys::keys::Secret, store::redis_store::RedisStore};

    /// A Redis that has begun anew has heard fewer.
    #[tokio::test(start_paused = true)]
    async fn fewer_instances_are_believed_after_half_a_minute() {
        let count = Arc::new(AtomicU32::new(4));
        let counted = Arc::clone(&count);
        memory::play("/beats", move |words| match words {
            [.., "0", _] => format!(":{}\r\n", counted.load(Ordering::Relaxed)),
            _ => "*0\r\n".to_owned(),
        });
        let store = RedisStore::builder("unix:///beats", "shop", Keys::plain())
            .connect()
            .expect("a valid address and a runtime");
        for (told, after, known) in [(4, 2, 4), (1, 20, 4), (1, 30, 1), (4, 7, 4)] {
            count.store(told, Ordering::Relaxed);
            sleep(Duration::from_secs(after)).await;
            assert_eq!(store.instances(), known, "{told} for {after} s");
        }
    }

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32]).expect("32 bytes")
    }

    fn tags(keys: &Keys) -> String {
        key_tags(keys, &Partition::One)
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
                let meet = meet(&tags(step), &tags(second));
                assert_eq!(meet, place.abs_diff(other) < 2, "{place} and {other}");
            }
        }
    }

    #[test]
    fn other_secrets_other_partitions_and_plain_keys_do_not_meet() {
        let hashed = Keys::hashed(secret(7));
        assert!(meet(&tags(&hashed), &tags(&Keys::hashed(secret(7)))));
        for other in [Keys::hashed(secret(8)), Keys::plain()] {
            assert!(!meet(&tags(&hashed), &tags(&other)));
        }
        for partition in [Partition::Key, Partition::ByRule("api".into())] {
            assert!(!meet(&tags(&hashed), &key_tags(&hashed, &partition)));
        }
        // Of another version.
        assert!(meet(&tags(&hashed), "one"));
    }

    fn quotas(rules: &[Rule]) -> Quotas {
        let mut quotas = Quotas::new();
        rules.iter().for_each(|rule| add_quotas(&mut quotas, rule));
        quotas
    }

    fn both(one: &Quotas, other: &Quotas) -> Quotas {
        let members: Vec<_> = [one, other]
            .into_iter()
            .flatten()
            .flat_map(|(rule, quotas)| quotas.iter().map(move |words| member(rule, words)))
            .collect();
        read_quotas(members.iter().map(String::as_str))
    }

    fn per_ip(quota: Quota) -> Rule {
        Rule::new("per-ip", quota)
    }

    #[test]
    fn a_quota_conflict_is_counted_at_once_and_logged_once_after_ten_minutes() {
        let own = quotas(&[
            per_ip(Quota::gcra(5, HOUR)),
            Rule::new("search", Quota::gcra(5, HOUR)),
        ]);
        let all = both(&own, &quotas(&[per_ip(Quota::fixed_window(6_000, MINUTE))]));
        let (began, mut conflicts) = (Instant::now(), QuotaConflicts::default());
        for second in 0..600 {
            let now = began + Duration::from_secs(second);
            let compared = conflicts.compare(&own, &all, now);
            let expected = [("per-ip", 1, None), ("search", 0, None)];
            assert_eq!(compared, expected, "after {second} s");
        }
        let lasting = [
            "bucket(5 per 3600s, 5 at once)",
            "fixed_window(6000 per 60s)",
        ];
        for (deployments, lasting) in [(1, Some(lasting.map(str::to_owned))), (2, None)] {
            let compared = conflicts.compare(&own, &all, began + deployments * DEPLOYMENT);
            assert_eq!(compared[0], ("per-ip", 1, lasting));
        }
    }

    #[test]
    fn a_conflict_begins_when_there_is_one_and_ends_with_its_rule() {
        let own = quotas(&[per_ip(Quota::gcra(5, HOUR))]);
        let all = both(&own, &quotas(&[per_ip(Quota::gcra(6, HOUR))]));
        let none = Quotas::new();
        let (began, mut conflicts) = (Instant::now(), QuotaConflicts::default());
        let mut lasting = |own, all, deployments: u32| {
            let now = began + deployments * DEPLOYMENT;
            let compared = conflicts.compare(own, all, now);
            compared
                .iter()
                .filter(|(.., lasting)| lasting.is_some())
                .count()
        };
        assert_eq!(lasting(&own, &own, 0), 0);
        assert_eq!(lasting(&own, &all, 2), 0);
        assert_eq!(lasting(&own, &all, 3), 1);
        assert_eq!(lasting(&own, &all, 4), 0);
        // The rule was away in between.
        assert_eq!(lasting(&none, &all, 5), 0);
        assert_eq!(lasting(&own, &all, 6), 0);
        assert_eq!(lasting(&own, &all, 7), 1);
    }

    #[test]
    fn what_counts_the_same_is_the_same_and_all_else_differs() {
        let words = |rule: Rule| in_words(&rule);
        let bucket = words(per_ip(Quota::gcra(10, SECOND).burst(20)));
        let same = words(per_ip(Quota::token_bucket(20).refill(10, SECOND)));
        assert_eq!(bucket, same);
        let (free, pro) = (Quota::gcra(1, SECOND), Quota::unlimited());
        let rule = || per_ip(Quota::gcra(10, SECOND));
        let plans = words(rule().plan("free", free).plan("pro", pro));
        assert_eq!(plans, words(rule().plan("pro", pro).plan("free", free)));
        assert!(plans.ends_with(", pro unlimited"), "{plans}");
        let plan = |quota| per_ip(Quota::gcra(10, SECOND)).plan("pro", quota);
        let different = [
            bucket,
            words(per_ip(Quota::gcra(10, SECOND))),
            words(per_ip(Quota::gcra(10, MINUTE))),
            words(per_ip(Quota::fixed_window(10, SECOND))),
            words(per_ip(Quota::sliding_window(10, SECOND))),
            words(per_ip(Quota::sliding_buckets(10, SECOND))),
            words(per_ip(Quota::sliding_buckets(10, SECOND).buckets(5))),
            words(per_ip(Quota::unlimited())),
            words(plan(Quota::gcra(20, SECOND))),
            words(plan(Quota::gcra(30, SECOND))),
        ];
        let distinct: BTreeSet<_> = different.iter().collect();
        assert_eq!(distinct.len(), different.len(), "{different:?}");
    }
}
