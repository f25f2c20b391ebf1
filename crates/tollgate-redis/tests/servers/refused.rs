//! A server that refuses some of the requests: only those fail, and soon no request is sent twice.

use std::{sync::Arc, time::Duration};

use redis::Value;
use tollgate_core::{
    Check, Consistency, Decision, HOUR, Key, LeaseShare, Limiter, MAX_PERIOD, OnStoreError,
    Outcome, Quota, Rule, RuleSet, Source, Step, Store,
    store::{Fingerprint, RuleStore},
};
use tollgate_redis::{BreakerState, Keys, RedisStore};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    eventually::eventually,
    proxy::{Fault, Proxy},
    redis_client::RedisClient,
    redis_server::PATIENCE,
};

/// Two commands of requests.
const REQUESTS: u128 = 64;
/// How many of them are refused.
const REFUSED: u128 = 4;

struct Subject {
    connection: RedisClient,
    server: RedisServer,
    store: RedisStore,
}

impl Subject {
    /// A store with rights of its own.
    async fn start() -> Self {
        let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]);
        let mut connection = RedisClient::connect(server.address());
        connection.say("ACL SETUSER limiter on >sesame ~* +@all");
        let address = format!("redis://limiter:sesame@127.0.0.1:{}", server.port());
        Self {
            store: store(&address, Duration::from_secs(20)).await,
            connection,
            server,
        }
    }

    fn bind(&self, rules: impl IntoIterator<Item = Rule>) -> Arc<dyn RuleStore> {
        let rules = Arc::new(RuleSet::new(rules).expect("valid rules"));
        self.store.bind(rules).expect("rules it can serve")
    }

    fn says(&mut self, command: &str) {
        assert_eq!(self.connection.say(command), Value::Okay);
    }

    /// The store may touch the states of rules whose names begin with `open`, and no others.
    fn keeps_out(&mut self) {
        self.says("ACL SETUSER limiter resetkeys ~*:open* ~refused:*");
    }

    /// How often the server ran the script since the last time, and how often it refused to.
    fn calls(&mut self) -> [u64; 2] {
        let Value::BulkString(stats) = self.connection.say("INFO commandstats") else {
            panic!("statistics are a text");
        };
        let stats = String::from_utf8(stats).expect("a text");
        self.says("CONFIG RESETSTAT");
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        ["calls=", "rejected_calls="].map(|name| {
            let mut parts = line.unwrap_or_default().split(',');
            let number = parts.find_map(|part| part.strip_prefix(name));
            number.map_or(0, |number| number.parse().expect("a number"))
        })
    }
}

async fn store(address: &str, deadline: Duration) -> RedisStore {
    let store = RedisStore::builder(address, "refused", Keys::plain())
        .deadline(deadline)
        // Only the test may send requests.
        .without_heartbeats()
        .without_deny_cache()
        .connect()
        .expect("a valid address, a deadline and a runtime");
    store.connected().await;
    store
}

/// All of these at once.
async fn all(steps: Vec<Step<Decision>>) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for step in steps {
        decisions.push(step.await);
    }
    decisions
}

fn count(decisions: &[Decision], outcome: Outcome) -> usize {
    let with = decisions.iter().filter(|it| it.outcome() == outcome);
    with.count()
}

#[tokio::test]
async fn on_a_full_server_only_takes_fail_and_denials_are_decided() {
    let mut subject = Subject::start().await;
    let bound = subject.bind([Rule::new("rule", Quota::gcra(1, HOUR))]);
    let check = |client| [Check::new(0, Fingerprint::from_bits(client), 1)];
    // All but some have used what they have.
    for client in REFUSED..REQUESTS {
        assert!(bound.acquire(&check(client)).await.is_allowed());
    }
    subject.says("CONFIG SET maxmemory 1");
    subject.calls();
    for _ in 0..20 {
        let requests = (0..REQUESTS).map(|client| bound.acquire(&check(client)));
        let decisions = all(requests.collect()).await;
        let (refused, others) = decisions.split_at(REFUSED as usize);
        assert_eq!(count(refused, Outcome::Failed), refused.len());
        assert_eq!(count(others, Outcome::Deny), others.len());
        for decision in others {
            assert_eq!(decision.verdicts()[0].source(), Source::Store);
        }
        // Nothing was sent twice.
        assert_eq!(subject.calls(), [2, 0]);
        assert_eq!(subject.store.breaker(), BreakerState::Closed);
    }
    subject.says("CONFIG SET maxmemory 0");
    for client in 0..REFUSED {
        assert!(bound.acquire(&check(client)).await.is_allowed());
    }
}

#[tokio::test]
async fn a_rule_whose_states_the_user_may_not_touch_fails_alone() {
    let mut subject = Subject::start().await;
    let quota = Quota::gcra(1_000, HOUR);
    let bound = subject.bind([Rule::new("open", quota), Rule::new("closed", quota)]);
    let check = |client| {
        let rule = u16::from(client % (REQUESTS / REFUSED) == 0);
        Check::new(rule, Fingerprint::from_bits(client), 1)
    };
    // The script is known.
    assert!(bound.acquire(&[check(1)]).await.is_allowed());
    subject.keeps_out();
    subject.calls();
    for round in 0..20 {
        let requests = (0..REQUESTS).map(|client| bound.acquire(&[check(client)]));
        let decisions = all(requests.collect()).await;
        for (client, decision) in (0..).zip(&decisions) {
            let expected = match check(client).rule() {
                0 => Outcome::Allow,
                _ => Outcome::Failed,
            };
            assert_eq!(decision.outcome(), expected, "{client} in round {round}");
        }
        let [ran, refused] = subject.calls();
        if round == 0 {
            // Both commands were refused, and then each of the requests went alone.
            assert_eq!(
                [ran, refused],
                [(REQUESTS - REFUSED) as u64, 2 + REFUSED as u64]
            );
        } else if refused > REFUSED as u64 {
            // Once in ten seconds they are tried together again.
            assert!(refused <= 2 + REFUSED as u64, "{refused} in round {round}");
        } else {
            assert_eq!([ran, refused], [2, REFUSED as u64], "round {round}");
        }
    }
    // Each was counted once.
    let looked = bound.peek(&[check(1).with_cost(0)]).await;
    assert_eq!(looked.verdicts()[0].remaining(), 1_000 - 21);
    subject.says("ACL SETUSER limiter ~*");
    assert!(bound.acquire(&[check(0)]).await.is_allowed());
}

/// Rules that are counted here until they are told to report.
fn eventual(name: &str) -> Rule {
    let rule = Rule::new(name, Quota::fixed_window(1_000, MAX_PERIOD));
    rule.consistency(Consistency::Eventual {
        interval: HOUR,
        max_unreported: 1_000,
    })
}

struct Counter {
    limiter: Limiter,
    checks: Vec<Check>,
}

impl Counter {
    /// One client of each of these rules, which is known here.
    async fn of(store: &RedisStore, names: &[&str]) -> Self {
        let rules = names.iter().map(|name| eventual(name));
        let limiter = Limiter::new(store.clone(), rules).expect("valid rules");
        let check = |name: &&str| limiter.check(name, &Key::of("client"));
        let checks = names.iter().map(check);
        let checks: Vec<_> = checks.map(|check| check.expect("it is there")).collect();
        let counter = Self { limiter, checks };
        for _ in 0..2 {
            counter.takes(1).await;
        }
        counter
    }

    async fn takes(&self, units: u64) {
        for check in &self.checks {
            let decision = self.limiter.acquire(&[check.with_cost(units)]).await;
            assert!(decision.is_allowed());
        }
    }
}

/// What another process finds left of each of these rules.
async fn left(server: &RedisServer, names: &[&str]) -> Vec<u64> {
    let address = format!("redis://127.0.0.1:{}", server.port());
    let store = store(&address, Duration::from_secs(20)).await;
    let rules = names
        .iter()
        .map(|name| Rule::new(*name, Quota::fixed_window(1_000, MAX_PERIOD)));
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let mut left = Vec::new();
    for name in names {
        let check = limiter.check(name, &Key::of("client"));
        let check = check.expect("it is there").with_cost(0);
        left.push(limiter.peek(&[check]).await.verdicts()[0].remaining());
    }
    left
}

/// As long as a flush tries what is refused, or may have arrived.
const WITHIN: Duration = Duration::from_secs(1);

#[tokio::test]
async fn reports_of_a_rule_that_is_refused_keep_no_others_back() {
    const NAMES: [&str; 2] = ["closed", "open"];
    let mut subject = Subject::start().await;
    let counter = Counter::of(&subject.store, &NAMES).await;
    assert_eq!(subject.store.flush(PATIENCE).await, 0);
    counter.takes(7).await;
    subject.keeps_out();
    assert_eq!(subject.store.flush(WITHIN).await, 7);
    assert_eq!(left(&subject.server, &NAMES).await, [998, 991]);
    // They were not given up.
    subject.says("ACL SETUSER limiter ~*");
    assert_eq!(subject.store.flush(PATIENCE).await, 0);
    assert_eq!(left(&subject.server, &NAMES).await, [991; 2]);
}

#[tokio::test]
async fn units_in_advance_that_a_full_server_does_not_take_back_stay_and_go_back_later() {
    let mut subject = Subject::start().await;
    let rule = Rule::new("rule", Quota::fixed_window(1_000, MAX_PERIOD));
    let rule = rule.consistency(Consistency::Leased {
        share: LeaseShare::percent(10),
    });
    let limiter = Limiter::new(subject.store.clone(), [rule]).expect("a valid rule");
    let check = limiter.check("rule", &Key::of("client"));
    let check = check.expect("it is there");
    let mut taken = 0;
    loop {
        let decision = limiter.acquire(&[check]).await;
        assert!(decision.is_allowed());
        taken += 1;
        if decision.verdicts()[0].source() == Source::Lease {
            break;
        }
    }
    subject.says("CONFIG SET maxmemory 1");
    subject.store.flush(WITHIN).await;
    subject.says("CONFIG SET maxmemory 0");
    subject.store.flush(PATIENCE).await;
    assert_eq!(left(&subject.server, &["rule"]).await, [1_000 - taken]);
}

#[tokio::test]
async fn a_report_whose_answer_is_lost_is_counted_once() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(server.port(), 7).await;
    let store = store(&proxy.url(), PATIENCE).await;
    let counter = Counter::of(&store, &["rule"]).await;
    for round in 1..=5 {
        // What was given up is asked for anew.
        counter.takes(1).await;
        assert_eq!(store.flush(PATIENCE).await, 0);
        counter.takes(7).await;
        // The report arrives, and the connection is cut before its answer.
        proxy.set(Fault::ResetAfter(0));
        assert_eq!(store.flush(WITHIN).await, 7, "round {round}");
        proxy.set(Fault::None);
        store.connected().await;
        assert_eq!(store.flush(PATIENCE).await, 0);
        assert_eq!(left(&server, &["rule"]).await, [998 - 8 * round]);
    }
}

#[tokio::test]
async fn a_start_that_should_fail_does_so_where_redis_would_refuse_its_requests() {
    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]);
    let mut connection = RedisClient::connect(server.address());
    let mut says = |command: &str| assert_eq!(connection.say(command), Value::Okay, "{command}");
    says("ACL SETUSER limiter on >sesame ~* +@all");
    let address = format!("redis://limiter:sesame@127.0.0.1:{}", server.port());
    let start = || {
        let store = RedisStore::builder(&address, "shop", Keys::plain()).without_heartbeats();
        store.connect_within(Duration::from_millis(300))
    };
    for (breaks, mends, words) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM"),
        (
            "ACL SETUSER limiter -evalsha",
            "ACL SETUSER limiter +evalsha",
            "'evalsha'",
        ),
        (
            "ACL SETUSER limiter resetkeys ~other:*",
            "ACL SETUSER limiter resetkeys ~*",
            "`redis`",
        ),
        (
            "REPLICAOF 127.0.0.1 1",
            "REPLICAOF NO ONE",
            "redis-sentinel://",
        ),
    ] {
        says(breaks);
        // A busy machine may take longer to connect.
        eventually(&format!("an error has {words}"), || async {
            let error = start().await.err()?.to_string();
            error.contains(words).then_some(())
        })
        .await;
        says(mends);
        eventually(&format!("a start after {mends}"), || async {
            start().await.ok()
        })
        .await;
    }
}

#[tokio::test]
async fn a_reset_that_is_refused_says_so() {
    let mut subject = Subject::start().await;
    let rule = Rule::new("rule", Quota::gcra(10, HOUR)).on_store_error(OnStoreError::Deny);
    let limiter = Limiter::new(subject.store.clone(), [rule]).expect("a valid rule");
    let key = Key::of("client");
    let check = limiter.check("rule", &key).expect("it is there");
    assert!(limiter.acquire(&[check]).await.is_allowed());
    for right in ["del", "time"] {
        subject.says(&format!("ACL SETUSER limiter -{right}"));
        let reset = limiter.reset("rule", &key).expect("it is there").await;
        let error = reset.expect_err("the user may not").to_string();
        assert!(
            error.starts_with("NOPERM ") && error.contains("ACL LOG"),
            "{error}"
        );
        subject.says(&format!("ACL SETUSER limiter +{right}"));
    }
    let looked = limiter.peek(&[check.with_cost(0)]).await;
    assert_eq!(looked.verdicts()[0].remaining(), 9);
}

#[tokio::test]
async fn a_reset_of_a_log_does_not_read_it() {
    let mut subject = Subject::start().await;
    let rule = Rule::new("rule", Quota::sliding_log(10, HOUR));
    let limiter = Limiter::new(subject.store.clone(), [rule]).expect("a valid rule");
    let key = Key::of("client");
    let check = limiter.check("rule", &key).expect("it is there");
    assert!(limiter.acquire(&[check]).await.is_allowed());
    subject.says("ACL SETUSER limiter -get");
    for was_there in [true, false] {
        let reset = limiter.reset("rule", &key).expect("it is there").await;
        assert_eq!(reset.expect("the user may delete"), was_there);
    }
}
