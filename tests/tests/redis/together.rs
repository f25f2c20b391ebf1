//! What goes together: each kind of rule, in each consistency and partition, waiting and not, either works or is refused with a way
//! out, as `docs/guide/waiting.md` says under "What goes together".

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::task::JoinSet;
use tollgate::{
    Consistency, DAY, Key, Limiter, MINUTE, MemoryStore, Quota, Rule, RuleError, SECOND,
    decision::Reason, store::LeaseShare,
};
use tollgate_core::AlgorithmKind;
use tollgate_redis::{Keys, Partition, RedisStore, Secret};
use tollgate_test_servers::{redis_cluster::RedisCluster, redis_server::RedisServer};

use crate::keys;

/// Longer than a test.
const PATIENCE: Duration = MINUTE;
const AT_MOST: Duration = Duration::from_secs(8 * 60 * 60);

/// Kinds of rules that let one request pass at a time.
const KINDS: [Quota; 8] = [
    Quota::gcra(3, DAY).burst(1),
    Quota::token_bucket(1).refill(3, DAY),
    Quota::leaky_bucket(1).leak(3, DAY),
    Quota::fixed_window(1, DAY),
    Quota::sliding_window(1, DAY),
    Quota::sliding_buckets(1, DAY),
    Quota::sliding_log(1, DAY),
    Quota::concurrent(1),
];
const CONSISTENCIES: [Consistency; 3] = [
    Consistency::Exact,
    Consistency::Leased {
        share: LeaseShare::percent(50),
    },
    Consistency::Eventual {
        interval: Duration::from_millis(50),
        max_unreported: 0,
    },
];

/// The stores of the test: in memory; a server and a cluster, with each partition.
struct Places {
    server: RedisServer,
    cluster: RedisCluster,
}

/// A store, in which rules are bound.
#[derive(Clone)]
enum Place {
    Memory,
    Redis(RedisStore),
}

impl Place {
    fn limiter(&self, rules: Vec<Rule>) -> Result<Limiter, RuleError> {
        match self {
            Self::Memory => Limiter::new(MemoryStore::new(), rules),
            Self::Redis(store) => Limiter::new(store.clone(), rules),
        }
    }
}

impl Places {
    async fn connect(&self, in_cluster: bool, partition: &Partition, keys: Keys) -> RedisStore {
        let (url, namespace) = match in_cluster {
            true => (self.cluster.url(), "together-in-cluster"),
            false => (self.server.url(), "together"),
        };
        // What one partition keeps is none of another's.
        let namespace = format!("{namespace}-{}", partition_name(partition));
        let store = RedisStore::builder(url, &namespace, keys).deadline(20 * SECOND);
        let store = store
            .partition(partition.clone())
            .cap_new_keys("capped", 100);
        let store = store.connect().expect("a valid address");
        store.connected().await;
        store
    }

    /// In memory, on the server with each partition, and on the cluster with each partition.
    async fn all(&self, by: &str) -> [Place; 7] {
        let mut all = vec![Place::Memory];
        for in_cluster in [false, true] {
            for partition in partitions(by) {
                let store = self.connect(in_cluster, &partition, keys()).await;
                all.push(Place::Redis(store));
            }
        }
        all.try_into().ok().expect("there are seven")
    }
}

/// `by` is the rule with whose client states lie.
fn partitions(by: &str) -> [Partition; 3] {
    [Partition::One, Partition::Key, Partition::ByRule(by.into())]
}

fn partition_name(partition: &Partition) -> &'static str {
    match partition {
        Partition::One => "one",
        Partition::Key => "key",
        _ => "by-rule",
    }
}

/// Where the first place of a cluster is among all, and where states lie by key.
const CLUSTER: usize = 4;
const BY_KEY: usize = 5;

/// Whether the guide's tables say yes. `other` is a rule of the same request.
fn goes(rule: &Rule, consistency: Consistency, other: Option<&Rule>, place: usize) -> bool {
    let is_delayed = |rule: &Rule| rule.at_most_wait().is_some() && !rule.has_slots();
    let bucket = matches!(
        rule.quota().algorithm(),
        AlgorithmKind::Gcra | AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket
    );
    if rule.at_most_wait().is_some() {
        let has_order = bucket || rule.has_slots();
        if !has_order || matches!(consistency, Consistency::Eventual { .. }) {
            return false;
        }
    }
    let leased = matches!(consistency, Consistency::Leased { .. });
    if place == 0 {
        return true;
    }
    if is_delayed(rule) && leased {
        return false;
    }
    let Some(other) = other else { return true };
    let (delayed, slots) = (
        is_delayed(rule) || is_delayed(other),
        rule.has_slots() || other.has_slots(),
    );
    !(delayed && (slots || place >= BY_KEY))
}

/// A refusal says what would work.
fn assert_remedy(bound: &Result<(), RuleError>, what: &str) {
    let Err(error) = bound else { return };
    let message = error.to_string();
    let remedies = ["take ", "put ", "leave ", "name "];
    let has_one = remedies.iter().any(|remedy| message.contains(remedy));
    assert!(has_one, "{what}: {message}");
}

fn rule(quota: Quota, consistency: Consistency, waits: bool) -> Rule {
    let rule = Rule::new("rule", quota).consistency(consistency);
    match waits {
        true => rule.wait(AT_MOST),
        false => rule,
    }
}

/// Whether rules work: what they were made for happens.
async fn works(place: Place, rules: Vec<Rule>, key: String) -> Result<(), RuleError> {
    let (first, names) = (
        rules[0].clone(),
        rules.iter().map(|rule| rule.name().to_owned()),
    );
    let names: Vec<_> = names.collect();
    let what = format!("{key}: {rules:?}");
    let limiter = place.limiter(rules)?;
    let checks = names.iter().enumerate().map(|(index, name)| {
        // Each rule counts by a key of its own.
        let check = limiter.check(name, &Key::of((&*key, index as u64)));
        check.expect("it is there")
    });
    let checks: Vec<_> = checks.collect();
    let admitted = limiter.acquire(&checks).await;
    assert!(
        admitted.is_allowed() && !admitted.is_degraded() && admitted.delay().is_zero(),
        "{what}: {admitted:?}"
    );
    let ticket = limiter.ticket(&checks, &admitted);
    match (first.has_slots(), first.at_most_wait().is_some()) {
        (false, false) => {
            let denied = limiter.acquire(&checks).await;
            assert_eq!(denied.reason(), Some(Reason::Quota), "{what}");
        }
        (false, true) => {
            let delayed = limiter.acquire(&checks).await;
            // Eight hours, less what the test has taken.
            let delay = delayed.delay();
            assert!(delayed.is_allowed() && delay <= AT_MOST, "{what}");
            assert!(delay > AT_MOST - PATIENCE, "{what}: {delay:?}");
            limiter.ticket(&checks, &delayed).cancel();
        }
        (true, waits) => {
            let denied = limiter.acquire(&checks).await;
            assert_eq!(denied.reason(), Some(Reason::Slots), "{what}");
            let waiting = limiter.acquire_within(&checks, PATIENCE);
            let release = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(ticket);
            };
            if waits {
                let (after, ()) = tokio::join!(waiting, release);
                assert!(after.is_ok_and(|it| it.is_allowed()), "{what}");
            } else {
                release.await;
                let after = limiter.acquire_within(&checks, PATIENCE).await;
                assert!(after.is_ok_and(|it| it.is_allowed()), "{what}");
            }
        }
    }
    Ok(())
}

/// Tries rules at all these places at the same time: which of them take the rules, and that those work there.
async fn tried(places: &[Place], rules: &[Rule]) -> Vec<bool> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let key = format!("client-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut tasks = JoinSet::new();
    for (index, place) in places.iter().cloned().enumerate() {
        let (rules, key) = (rules.to_vec(), key.clone());
        tasks.spawn(async move { (index, works(place, rules, key).await) });
    }
    let mut all = tasks.join_all().await;
    all.sort_by_key(|(index, _)| *index);
    for (index, bound) in &all {
        assert_remedy(bound, &format!("place {index}: {rules:?}"));
    }
    all.iter().map(|(_, bound)| bound.is_ok()).collect()
}

async fn start() -> Places {
    Places {
        server: RedisServer::start(&[]).await,
        cluster: RedisCluster::start_patient().await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_alone_and_next_to_others_work_or_are_refused() {
    let places = start().await;
    let rate = Quota::gcra(100, DAY);
    for other in [
        None,
        Some(Rule::new("other", rate)),
        Some(Rule::new("other", rate).wait(AT_MOST)),
        Some(Rule::new("other", Quota::concurrent(100))),
    ] {
        let by = if other.is_some() { "other" } else { "rule" };
        let all = places.all(by).await;
        for quota in KINDS {
            for consistency in CONSISTENCIES {
                for waits in [false, true] {
                    let own = rule(quota, consistency, waits);
                    let goes = |place| goes(&own, consistency, other.as_ref(), place);
                    let expected: Vec<_> = (0..all.len()).map(goes).collect();
                    let rules: Vec<_> = [&own].into_iter().chain(&other).cloned().collect();
                    assert_eq!(tried(&all, &rules).await, expected, "{rules:?}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_rules_and_of_stores_work_or_are_refused() {
    let places = start().await;
    let all = places.all("rule").await;
    let (bucket, slots) = (Quota::gcra(3, DAY).burst(1), Quota::concurrent(1));
    for (quota, waits) in [
        (bucket, false),
        (bucket, true),
        (slots, false),
        (slots, true),
    ] {
        let own = || rule(quota, Consistency::Exact, waits);
        for rule in [
            own().plan("gold", quota).variable_quota(),
            own().threshold("warn", quota),
            own().shadow(),
        ] {
            // They are bound. A shadow partitions nothing.
            for place in all[..3].iter().chain(&all[CLUSTER..BY_KEY + 1]) {
                let bound = place.limiter(vec![rule.clone()]);
                assert!(bound.is_ok(), "{rule:?}: {bound:?}");
            }
        }
        let capped = Rule::new("capped", quota);
        let capped = if waits { capped.wait(AT_MOST) } else { capped };
        // Where states lie with another rule's client, there is one.
        for of_key in [&all[1..3], &all[CLUSTER..BY_KEY + 1]] {
            let is_rate = !capped.has_slots();
            assert_eq!(
                tried(of_key, std::slice::from_ref(&capped)).await,
                [is_rate; 2]
            );
        }
    }
    let own = [rule(bucket, Consistency::Exact, false)];
    for in_cluster in [false, true] {
        for partition in partitions("rule") {
            let before = Secret::from_bytes([8; 32]).expect("it is long enough");
            let keys = keys().previous(before).expect("another secret");
            let store = places.connect(in_cluster, &partition, keys).await;
            let moves = !in_cluster || matches!(partition, Partition::One);
            assert_eq!(tried(&[Place::Redis(store)], &own).await, [moves]);
        }
    }
    // A partition by a rule that is not there.
    let unknown = places.all("unknown").await;
    for place in [3, 6] {
        let one = &unknown[place..=place];
        assert_eq!(tried(one, &own).await, [false]);
    }
}
