//! What goes together: each kind of rule in each setting either works or is refused with a way out, and the guide's table says
//! which. `TOLLGATE_BLESS=1 cargo test -p tollgate-tests --test redis together` writes the table.

use std::{env, fmt::Write, fs, path::Path, time::Duration};

use tollgate::{
    Consistency, DAY, Key, LeaseShare, Limiter, MINUTE, MemoryStore, Quota, Reason, Rule,
    RuleError, SECOND, Store,
};
use tollgate_redis::{Partition, RedisStore};
use tollgate_test_servers::redis_server::RedisServer;

use crate::keys;

const PAGE: &str = "../docs/guide/goes-together.md";

/// Longer than a test.
const PATIENCE: Duration = MINUTE;

/// Kinds of rules, of which one request passes at a time.
const KINDS: [(&str, Quota); 8] = [
    ("`gcra`", Quota::gcra(3, DAY).burst(1)),
    ("`token_bucket`", Quota::token_bucket(1).refill(3, DAY)),
    ("`leaky_bucket`", Quota::leaky_bucket(1).leak(3, DAY)),
    ("`fixed_window`", Quota::fixed_window(1, DAY)),
    ("`sliding_window`", Quota::sliding_window(1, DAY)),
    ("`sliding_buckets`", Quota::sliding_buckets(1, DAY)),
    ("`sliding_log`", Quota::sliding_log(1, DAY)),
    ("`concurrent`", Quota::concurrent(1)),
];

fn consistencies() -> [(&'static str, Consistency); 3] {
    let (share, interval) = (LeaseShare::percent(50), Duration::from_millis(50));
    let max_unreported = 0;
    [
        ("`Exact`", Consistency::Exact),
        ("`Leased`", Consistency::Leased { share }),
        (
            "`Eventual`",
            Consistency::Eventual {
                interval,
                max_unreported,
            },
        ),
    ]
}

/// The messages of refusals, each with its number on the page.
#[derive(Default)]
struct Refusals(Vec<String>);

impl Refusals {
    fn cell(&mut self, bound: &Result<(), RuleError>) -> String {
        let Err(error) = bound else {
            return "yes".into();
        };
        let message = error.to_string();
        let message = message
            .strip_prefix("rule \"rule\": ")
            .expect("it names the rule");
        // Those of several algorithms differ in the name alone.
        let algorithm = message.split(' ').next().unwrap_or_default();
        let message = match KINDS.iter().any(|(name, _)| name.contains(algorithm)) {
            true => message.replacen(algorithm, "…", 1),
            false => message.to_owned(),
        };
        let known = self.0.iter().position(|other| *other == message);
        let number = known.unwrap_or_else(|| {
            self.0.push(message);
            self.0.len() - 1
        });
        format!("no ({})", number + 1)
    }

    fn write(self, page: &mut String) {
        page.push_str("\nWhat each refusal says:\n\n");
        for (index, message) in self.0.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = writeln!(page, "{}. {message}", index + 1);
        }
    }
}

fn rule(quota: Quota, consistency: Consistency, waits: bool) -> Rule {
    let rule = Rule::new("rule", quota).consistency(consistency);
    match waits {
        true => rule.wait(8 * 60 * MINUTE),
        false => rule,
    }
}

/// Whether rules work: what they were made for happens.
async fn works(store: impl Store, rules: Vec<Rule>, key: &str) -> Result<(), RuleError> {
    let (first, names) = (
        rules[0].clone(),
        rules.iter().map(|rule| rule.name().to_owned()),
    );
    let names: Vec<_> = names.collect();
    let limiter = Limiter::new(store, rules)?;
    let checks = names.iter().enumerate().map(|(index, name)| {
        // Each rule counts by a key of its own.
        let check = limiter.check(name, &Key::of((key, index as u64)));
        check.expect("it is there")
    });
    let checks: Vec<_> = checks.collect();
    let what = format!("{key}: {names:?} {first:?}");
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
            assert!(delayed.is_allowed() && delay <= DAY / 3, "{what}");
            assert!(delay > DAY / 3 - PATIENCE, "{what}: {delay:?}");
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
                let after = limiter.acquire_within(&checks, SECOND).await;
                assert!(after.is_ok_and(|it| it.is_allowed()), "{what}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_guide_says_what_goes_together() {
    let server = RedisServer::start(&[]).await;
    let redis = |partition: Partition| {
        let store = RedisStore::builder(server.url(), "together", keys());
        let store = store.deadline(20 * SECOND).partition(partition);
        store.connect().expect("a valid address")
    };
    let store = redis(Partition::One);
    store.connected().await;
    let (mut page, mut refusals, mut number) = (String::new(), Refusals::default(), 0);
    let mut key = || {
        number += 1;
        format!("client-{number}")
    };

    page.push_str("| rule | in memory |");
    for (name, _) in consistencies() {
        let _ = write!(page, " Redis, {name} |");
    }
    page.push_str("\n| --- | --- | --- | --- | --- |\n");
    for (kind, quota) in KINDS {
        for waits in [false, true] {
            let own = rule(quota, Consistency::Exact, waits);
            let bound = works(MemoryStore::new(), vec![own], &key()).await;
            let waiting = if waits { " that waits" } else { "" };
            let _ = write!(page, "| {kind}{waiting} | {} |", refusals.cell(&bound));
            for (_, consistency) in consistencies() {
                let own = rule(quota, consistency, waits);
                let bound = works(store.clone(), vec![own], &key()).await;
                let _ = write!(page, " {} |", refusals.cell(&bound));
            }
            page.push('\n');
        }
    }

    page.push_str("\nTwo rules of one request, by keys of their own:\n\n");
    page.push_str("| rules | in memory | Redis, `Partition::One` | `Partition::Key` | `Partition::ByRule` |\n");
    page.push_str("| --- | --- | --- | --- | --- |\n");
    let window = Quota::fixed_window(100, DAY);
    let (bucket, slots) = (Quota::gcra(3, DAY).burst(1), Quota::concurrent(1));
    for (name, quota, waits, other) in [
        ("a rate and another", bucket, false, window),
        (
            "a rate that waits and one that does not",
            bucket,
            true,
            window,
        ),
        ("slots and a rate", slots, false, window),
        ("slots that wait and a rate", slots, true, window),
        (
            "slots and a rate that waits",
            bucket,
            true,
            Quota::concurrent(100),
        ),
    ] {
        let rules = || {
            vec![
                rule(quota, Consistency::Exact, waits),
                Rule::new("other", other),
            ]
        };
        let bound = works(MemoryStore::new(), rules(), &key()).await;
        let _ = write!(page, "| {name} | {} |", refusals.cell(&bound));
        for partition in [
            Partition::One,
            Partition::Key,
            Partition::ByRule("other".into()),
        ] {
            let store = redis(partition);
            store.connected().await;
            let bound = works(store, rules(), &key()).await;
            let _ = write!(page, " {} |", refusals.cell(&bound));
        }
        page.push('\n');
    }

    // They are bound, in memory and on Redis.
    let on_redis = store.clone();
    page.push_str("\nSettings of a rule:\n\n| rule | `plan`, `variable_quota` | `threshold` | `shadow` | `OnChange::Scale` | `OnChange::Reset` | on Redis, `cap_new_keys` |\n");
    page.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    for (name, quota, waits) in [
        ("a rate", bucket, false),
        ("a rate that waits", bucket, true),
        ("slots", slots, false),
        ("slots that wait", slots, true),
    ] {
        use tollgate::OnChange;
        let own = || rule(quota, Consistency::Exact, waits);
        let _ = write!(page, "| {name} |");
        for rule in [
            own().plan("gold", quota).variable_quota(),
            own().threshold("warn", quota),
            own().shadow(),
            own().on_change(OnChange::Scale),
            own().on_change(OnChange::Reset),
        ] {
            let bound = Limiter::new(MemoryStore::new(), [rule.clone()]);
            let bound = bound.and_then(|_| Limiter::new(on_redis.clone(), [rule]));
            let bound = bound.map(drop);
            let _ = write!(page, " {} |", refusals.cell(&bound));
        }
        let capped = RedisStore::builder(server.url(), "capped", keys()).cap_new_keys("rule", 100);
        let capped = capped.deadline(20 * SECOND).connect();
        let capped = capped.expect("a valid address");
        capped.connected().await;
        let bound = works(capped, vec![own()], &key()).await;
        let _ = writeln!(page, " {} |", refusals.cell(&bound));
    }
    refusals.write(&mut page);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let written = fs::read_to_string(&path).unwrap_or_default();
    let is_table = |line: &&str| line.starts_with('|');
    let head = written.lines().take_while(|line| !is_table(line));
    let head: String = head.map(|line| format!("{line}\n")).collect();
    // The definitions of links are the book's.
    let foot = written.find("\n[").map_or("", |at| &written[at..]);
    let page = head + &page + foot;
    if env::var_os("TOLLGATE_BLESS").is_some() {
        fs::write(&path, &page).expect("the page is written");
    } else {
        assert!(
            written == page,
            "the table is not current; TOLLGATE_BLESS=1 writes it"
        );
    }
}
