//! What goes together: each kind of rule, in each consistency and partition, waiting and not, either works or is refused with a
//! way out, and the guide's tables say which. `TOLLGATE_BLESS=1 cargo test -p tollgate-tests --test redis together` writes them.

use std::{env, fmt::Write, fs, path::Path, time::Duration};

use tokio::task::JoinSet;
use tollgate::{
    Consistency, DAY, Key, LeaseShare, Limiter, MINUTE, MemoryStore, Quota, Reason, Rule,
    RuleError, SECOND,
};
use tollgate_redis::{Keys, Partition, RedisStore, Secret};
use tollgate_test_servers::{redis_cluster::RedisCluster, redis_server::RedisServer};

use crate::keys;

const PAGE: &str = "../docs/guide/goes-together.md";

/// What the test writes begins here; the lines before are written by hand.
const FIRST_HEADING: &str = "## One rule\n";

/// Longer than a test.
const PATIENCE: Duration = MINUTE;
const AT_MOST: Duration = Duration::from_secs(8 * 60 * 60);

/// Kinds of rules that let one request pass at a time.
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

const CONSISTENCIES: [(&str, Consistency); 3] = [
    ("`Exact`", Consistency::Exact),
    (
        "`Leased`",
        Consistency::Leased {
            share: LeaseShare::percent(50),
        },
    ),
    (
        "`Eventual`",
        Consistency::Eventual {
            interval: Duration::from_millis(50),
            max_unreported: 0,
        },
    ),
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

/// The messages of refusals, each with its number on the page.
#[derive(Default)]
struct Refusals(Vec<String>);

impl Refusals {
    fn cell(&mut self, bound: &Result<(), RuleError>) -> String {
        let Err(error) = bound else {
            return "yes".into();
        };
        let message = error.to_string();
        let name = error.rule().map(|rule| format!("rule {rule:?}: "));
        let message = message
            .strip_prefix(&*name.unwrap_or_default())
            .expect("it names the rule");
        // Those of several algorithms differ in the name alone.
        let algorithm = message.split(' ').next().unwrap_or_default();
        let message = match KINDS
            .iter()
            .any(|(name, _)| name.trim_matches('`') == algorithm)
        {
            true => message.replacen(algorithm, "…", 1),
            false => message.to_owned(),
        };
        // Each says what would work.
        assert!(
            ["take ", "put ", "leave ", "name "]
                .iter()
                .any(|remedy| message.contains(remedy)),
            "{message}"
        );
        let known = self.0.iter().position(|other| *other == message);
        let number = known.unwrap_or_else(|| {
            self.0.push(message);
            self.0.len() - 1
        });
        format!("no ({})", number + 1)
    }

    fn write(self, page: &mut String) {
        page.push_str("\n## What each refusal says\n\n");
        for (index, message) in self.0.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = writeln!(page, "{}. {message}", index + 1);
        }
    }
}

/// The rows of a kind that waits or does not: consistencies, and what each place says.
type RowsOfKind = Vec<(String, Vec<String>)>;

/// Consistencies with the same cells are one row.
fn merge_consistencies(all: Vec<(&str, Vec<String>)>) -> RowsOfKind {
    let mut rows = RowsOfKind::new();
    for (consistency, cells) in all {
        match rows.iter_mut().find(|row| row.1 == cells) {
            Some(row) => row.0 += &format!(", {consistency}"),
            None => rows.push((consistency.to_owned(), cells)),
        }
    }
    if let [(any, _)] = &mut *rows {
        "any".clone_into(any);
    }
    rows
}

/// Kinds that are called together where they do the same.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "any",
        &[
            "`gcra`",
            "`token_bucket`",
            "`leaky_bucket`",
            "`fixed_window`",
            "`sliding_window`",
            "`sliding_buckets`",
            "`sliding_log`",
            "`concurrent`",
        ],
    ),
    (
        "any rate",
        &[
            "`gcra`",
            "`token_bucket`",
            "`leaky_bucket`",
            "`fixed_window`",
            "`sliding_window`",
            "`sliding_buckets`",
            "`sliding_log`",
        ],
    ),
    ("a bucket", &["`gcra`", "`token_bucket`", "`leaky_bucket`"]),
    (
        "a window or a log",
        &[
            "`fixed_window`",
            "`sliding_window`",
            "`sliding_buckets`",
            "`sliding_log`",
        ],
    ),
];

/// Writes rows; kinds whose rows are the same have them together.
fn write_rows(page: &mut String, all: Vec<(&'static str, bool, RowsOfKind)>) {
    let mut merged: Vec<(Vec<&str>, bool, RowsOfKind)> = Vec::new();
    for (kind, waits, rows) in all {
        match merged.iter_mut().find(|it| it.1 == waits && it.2 == rows) {
            Some((kinds, ..)) => kinds.push(kind),
            None => merged.push((vec![kind], waits, rows)),
        }
    }
    for (kinds, waits, rows) in merged {
        let group = GROUPS.iter().find(|(_, of)| *of == kinds);
        let kinds = group.map_or_else(|| kinds.join(", "), |(name, _)| (*name).to_owned());
        let waits = if waits { "waits" } else { "" };
        for (consistency, cells) in rows {
            let cells = cells.join(" | ");
            let _ = writeln!(page, "| {kinds} | {waits} | {consistency} | {cells} |");
        }
    }
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
                let after = limiter.acquire_within(&checks, SECOND).await;
                assert!(after.is_ok_and(|it| it.is_allowed()), "{what}");
            }
        }
    }
    Ok(())
}

/// What becomes of rules at each place.
struct Trials {
    number: u64,
    refusals: Refusals,
}

impl Trials {
    /// At all places at the same time; what each says, in their order.
    async fn at(&mut self, places: &[Place], rules: &[Rule]) -> Vec<String> {
        self.number += 1;
        let mut tasks = JoinSet::new();
        for (index, place) in places.iter().cloned().enumerate() {
            let (rules, key) = (rules.to_vec(), format!("client-{}", self.number));
            tasks.spawn(async move { (index, works(place, rules, key).await) });
        }
        let mut all = tasks.join_all().await;
        all.sort_by_key(|(index, _)| *index);
        let all = all.iter().map(|(_, bound)| self.refusals.cell(bound));
        all.collect()
    }

    /// Each kind in each consistency, waiting and not, next to another rule. `columns` makes the cells of what each place says.
    async fn kinds(
        &mut self,
        page: &mut String,
        places: &[Place],
        other: Option<&Rule>,
        columns: impl Fn(&[String]) -> Vec<String>,
    ) {
        let mut rows = Vec::new();
        for waits in [false, true] {
            for (kind, quota) in KINDS {
                let mut of_kind = Vec::new();
                for (name, consistency) in CONSISTENCIES {
                    let rules = [rule(quota, consistency, waits)].into_iter();
                    let rules: Vec<_> = rules.chain(other.cloned()).collect();
                    of_kind.push((name, columns(&self.at(places, &rules).await)));
                }
                rows.push((kind, waits, merge_consistencies(of_kind)));
            }
        }
        write_rows(page, rows);
    }
}

/// What all of them say, which has to be the same.
fn same(cells: &[String]) -> String {
    let all_same = cells.iter().all(|cell| *cell == cells[0]);
    assert!(all_same, "they need columns of their own: {cells:?}");
    cells[0].clone()
}

fn heading(page: &mut String, titles: &[&str]) {
    let _ = writeln!(page, "| {} |", titles.join(" | "));
    let _ = writeln!(page, "|{}", " --- |".repeat(titles.len()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_says_what_goes_together() {
    let places = Places {
        server: RedisServer::start(&[]).await,
        cluster: RedisCluster::start_patient().await,
    };
    let (mut page, mut trials) = (
        FIRST_HEADING.to_owned(),
        Trials {
            number: 0,
            refusals: Refusals::default(),
        },
    );

    page.push_str(
        "\nOne rule alone is the same on a server and on a cluster, with each partition.\n\n",
    );
    heading(
        &mut page,
        &["rule", "", "consistency", "in memory", "on Redis"],
    );
    let alone = places.all("rule").await;
    let columns = |cells: &[String]| vec![cells[0].clone(), same(&cells[1..])];
    trials.kinds(&mut page, &alone, None, columns).await;

    page.push_str(
        "\n## Two rules of one request\n\nThey count by different keys, such as one by address and one by account. A server decides\n\
         both in one step, with any partition. A cluster does with `Partition::One`; with `Key` they are two steps, and with `ByRule`,\n\
         which names the other rule here, a request without that rule would be. What the first step took goes back when the second\n\
         denies.\n",
    );
    let both = places.all("other").await;
    let rate = Quota::gcra(100, DAY);
    for (name, other) in [
        ("a rate that does not wait", Rule::new("other", rate)),
        ("a rate that waits", Rule::new("other", rate).wait(AT_MOST)),
        ("slots", Rule::new("other", Quota::concurrent(100))),
    ] {
        let _ = write!(page, "\n### Next to {name}\n\n");
        let titles = ["rule", "", "consistency", "in memory", "a server"];
        let in_cluster = ["cluster, `One`", "`Key`", "`ByRule`"];
        heading(&mut page, &[&titles[..], &in_cluster].concat());
        let columns = |cells: &[String]| {
            let server = [cells[0].clone(), same(&cells[1..4])];
            server.into_iter().chain(cells[4..].to_vec()).collect()
        };
        trials.kinds(&mut page, &both, Some(&other), columns).await;
    }

    page.push_str("\n## Settings of a rule\n\nIn memory and on Redis.\n\n");
    heading(
        &mut page,
        &[
            "rule",
            "`plan`, `variable_quota`",
            "`threshold`",
            "`shadow`",
            "on Redis, `cap_new_keys`",
        ],
    );
    let (bucket, slots) = (Quota::gcra(3, DAY).burst(1), Quota::concurrent(1));
    for (name, quota, waits) in [
        ("a rate", bucket, false),
        ("a rate that waits", bucket, true),
        ("slots", slots, false),
        ("slots that wait", slots, true),
    ] {
        let own = || rule(quota, Consistency::Exact, waits);
        let _ = write!(page, "| {name} |");
        for rule in [
            own().plan("gold", quota).variable_quota(),
            own().threshold("warn", quota),
            own().shadow(),
        ] {
            // They are bound. A shadow partitions nothing.
            let bound = alone[..3].iter().chain(&alone[4..6]).map(|place| {
                let bound = place.limiter(vec![rule.clone()]).map(drop);
                trials.refusals.cell(&bound)
            });
            let bound: Vec<_> = bound.collect();
            let _ = write!(page, " {} |", same(&bound));
        }
        let mut capped = Rule::new("capped", quota);
        if waits {
            capped = capped.wait(AT_MOST);
        }
        // Where states lie with another rule's client, there is one.
        let cells = trials.at(&alone[1..3], &[capped.clone()]).await;
        let in_cluster = trials.at(&alone[4..6], &[capped]).await;
        let _ = writeln!(page, " {} |", same(&[cells, in_cluster].concat()));
    }

    page.push_str("\n## Settings of a store\n\n");
    heading(
        &mut page,
        &["setting", "a server", "cluster, `One`", "`Key`", "`ByRule`"],
    );
    page.push_str("| a change of secrets: `Keys::previous` |");
    let mut cells = Vec::new();
    for in_cluster in [false, true] {
        for partition in partitions("rule") {
            let before = Secret::from_bytes([8; 32]).expect("it is long enough");
            let keys = keys().previous(before).expect("another secret");
            let store = places.connect(in_cluster, &partition, keys).await;
            let own = [rule(bucket, Consistency::Exact, false)];
            cells.extend(trials.at(&[Place::Redis(store)], &own).await);
        }
    }
    let _ = writeln!(
        page,
        " {} | {} |",
        same(&cells[..3]),
        cells[3..].join(" | ")
    );
    page.push_str("| a partition by a rule that is not there, or not enforced |");
    let unknown = places.all("unknown").await;
    let bound = [&unknown[3], &unknown[6]].map(|place| {
        let bound = place.limiter(vec![rule(bucket, Consistency::Exact, false)]);
        trials.refusals.cell(&bound.map(drop))
    });
    let no = same(&bound);
    let _ = writeln!(page, " {no} | | | {no} |");
    trials.refusals.write(&mut page);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let written = fs::read_to_string(&path).unwrap_or_default();
    let head = written.find(FIRST_HEADING).map_or("", |at| &written[..at]);
    // The definitions of links are the book's.
    let is_link = |line: &&str| line.starts_with('[') && line.contains("]: ");
    let links: Vec<_> = written.lines().filter(is_link).collect();
    let page = format!("{head}{page}\n{}\n", links.join("\n"));
    if env::var_os("TOLLGATE_BLESS").is_some() {
        fs::write(&path, &page).expect("the page is written");
    } else {
        assert!(
            written == page,
            "the tables are not current; TOLLGATE_BLESS=1 writes them"
        );
    }
}
