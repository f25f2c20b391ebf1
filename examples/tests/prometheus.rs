//! The dashboards and alerts of `ops/`, against a service with the limits of the examples and a real Prometheus that scrapes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use axum::{Router, body::Body, routing::get};
use http::Request;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::Value;
use tokio::time::timeout;
use tollgate::{
    Block, Check, Consistency, HOUR, Key, Limiter, MemoryStore, Quota, RateLimitLayer, Rule,
    SECOND,
    clock::ManualClock,
    key::constant,
    observe::flush_metrics,
    shed::{Capacity, Priority, ShedLayer},
    store::LeaseShare,
};
use tollgate_ledger::Ledger;
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_rules::{Bindings, LiveRules};
use tollgate_server::{Settings, install_metrics};
use tollgate_test_servers::redis_server::{RedisServer, free_port};
use tollgate_tests::server::Server;
use tower::ServiceExt;

/// A wait that no test comes near: it turns a hang into a failure.
const HANGS: Duration = Duration::from_secs(240);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn dashboards() -> [Value; 2] {
    ["tollgate", "tollgate-redis"].map(|name| {
        let text = read(&format!("ops/grafana/{name}.json"));
        serde_json::from_str(&text).expect("it is JSON")
    })
}

/// The queries of a dashboard, with the titles of their panels.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let of_panel = |panel: &Value| -> Vec<(String, String)> {
        let title = panel["title"].as_str().expect("a title").to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        // The top keys are no metric.
        let queries = targets.iter().filter_map(|target| target["expr"].as_str());
        queries
            .map(|query| (title.clone(), filled_in(query)))
            .collect()
    };
    panels.flat_map(of_panel).collect()
}

/// What Grafana does with its variables.
fn filled_in(query: &str) -> String {
    query
        .replace("$__rate_interval", "1m")
        .replace("$rule", ".*")
}

/// The metrics that a query selects, with the labels that it asks for.
fn selected(query: &str) -> Vec<(String, Vec<String>)> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let starts = query.match_indices("tollgate_").map(|(at, _)| at);
    starts
        .map(|at| {
            let rest = &query[at..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            let selector = rest
                .strip_prefix('{')
                .and_then(|rest| rest.split('}').next());
            let matchers = selector.unwrap_or("").split(',').filter(|m| !m.is_empty());
            let label = |matcher: &str| matcher.split(['=', '!']).next().unwrap_or("").to_owned();
            (name.to_owned(), matchers.map(label).collect())
        })
        .collect()
}

/// The labels that a query groups by.
fn groups(query: &str) -> Vec<String> {
    let lists = query.split("by (").skip(1);
    let lists = lists.filter_map(|rest| rest.split(')').next());
    lists
        .flat_map(|list| list.split(',').map(|label| label.trim().to_owned()))
        .collect()
}

/// The label names of each metric that a service exposes.
fn exposed(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let name_end = line.find(['{', ' ']).expect("a name and a value");
        let labels = metrics.entry(line[..name_end].to_owned()).or_default();
        let Some(list) = line[name_end..].strip_prefix('{') else {
            continue;
        };
        // Labels are `name="value"`, and no value here has a quote.
        for label in list
            .split("\",")
            .filter_map(|label| label.split("=\"").next())
        {
            labels.insert(label.trim().to_owned());
        }
    }
    metrics
}

/// What a page says of a metric's labels.
enum Labels {
    All(BTreeSet<String>),
    Some(BTreeSet<String>),
}

/// The metrics that the pages of the guide name, with the page and the labels.
fn named_in_guide() -> Vec<(String, String, Labels)> {
    let pages = fs::read_dir(repository().join("docs/guide")).expect("the guide");
    let tables = read("crates/tollgate-ledger/src/schema.rs");
    let mut named = Vec::new();
    for page in pages.map(|page| page.expect("a page").path()) {
        let name = page.file_name().expect("a file").to_string_lossy();
        let mut section = "";
        let text = read(&format!("docs/guide/{name}"));
        for line in text.lines() {
            section = line.strip_prefix("## ").unwrap_or(section);
            let is_row = line.starts_with("- `tollgate_");
            for (place, code) in line.split('`').skip(1).step_by(2).enumerate() {
                let (metric, labels) = code.split_once('{').unwrap_or((code, ""));
                let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
                // `tollgate_redis` and the like are crates.
                let is_metric = metric.starts_with("tollgate_")
                    && metric.matches('_').count() > 1
                    && !tables.contains(metric);
                if !is_metric && metric != "tollgate_waiting" || !metric.chars().all(is_part) {
                    continue;
                }
                let labels = labels.trim_end_matches('}').split(',');
                let labels = labels.filter_map(|label| label.split('=').next());
                let labels: Vec<&str> = labels.filter(|label| !label.is_empty()).collect();
                let labels = labels.into_iter().map(str::to_owned).collect();
                let has_all = ["Metrics", "Redis"].contains(&section);
                let labels = match is_row && place == 0 && has_all {
                    true => Labels::All(labels),
                    false => Labels::Some(labels),
                };
                named.push((name.to_string(), metric.to_owned(), labels));
            }
        }
    }
    assert!(named.len() > 60, "the pages name few metrics");
    named
}

/// The alerts of `ops/prometheus/alerts.yml`: their queries.
fn alert_queries() -> Vec<String> {
    let text = read("ops/prometheus/alerts.yml");
    let lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: '"));
    lines
        .map(|line| line.trim_end_matches('\'').to_owned())
        .collect()
}

/// A Prometheus that scrapes a service, and evaluates the alerts.
struct Prometheus {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(service: &Server) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let alerts = repository().join("ops/prometheus/alerts.yml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [{:?}]\n\
             scrape_configs:\n  - job_name: example\n    static_configs: [{{ targets: [{:?}] }}]\n",
            fs::canonicalize(alerts).expect("it is there"),
            service.address().to_string(),
        );
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config).expect("written");
        let port = free_port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus: {error}; ./test.sh installs it"));
        Self {
            child,
            port,
            _folder: folder,
        }
    }

    /// What it answers; `None` before it listens.
    fn ask(&self, path: &str, query: &str) -> Option<Value> {
        let output = Command::new("curl")
            .args(["--silent", "--get", "--data-urlencode"])
            .arg(format!("query={query}"))
            .arg(format!("http://127.0.0.1:{}/api/v1/{path}", self.port))
            .output()
            .expect("curl runs; ./test.sh installs it");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Whether a query has a result.
    fn has_data(&self, query: &str) -> bool {
        let Some(answer) = self.ask("query", query) else {
            return false;
        };
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"]
            .as_array()
            .is_some_and(|result| !result.is_empty())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rules of each consistency on Redis, and a check of each.
fn on_redis(store: &RedisStore) -> (Limiter, Vec<Check>) {
    let quota = Quota::fixed_window(1_000_000, HOUR);
    let leased = Consistency::Leased {
        share: LeaseShare::percent(10),
    };
    let eventual = Consistency::Eventual {
        interval: Duration::from_millis(50),
        max_unreported: 40,
    };
    let rules = [
        Rule::new("exact", Quota::gcra(100, HOUR)),
        Rule::new("leased", quota).consistency(leased),
        Rule::new("eventual", quota).consistency(eventual),
        Rule::new("capped", quota),
        Rule::new("at-once", Quota::concurrent(9)),
    ];
    let names = rules.each_ref().map(|rule| rule.name().to_owned());
    let limiter = Limiter::new(store.clone(), rules).expect("valid rules");
    let check = |name: &String| limiter.check(name, &Key::shared()).expect("it is there");
    let checks = names.iter().map(check).collect();
    (limiter, checks)
}

fn redis_store(redis: &RedisServer) -> RedisStore {
    let secret = Secret::from_bytes([7_u8; 32]).expect("32 bytes");
    RedisStore::builder(redis.url(), "shop", Keys::hashed(secret))
        .measure_namespace(100_000)
        .cap_new_keys("capped", 1)
        .connect()
        .expect("valid settings")
}

/// The service that is scraped.
fn app(limits: RateLimitLayer, recorder: PrometheusHandle) -> Router {
    let render = move || {
        flush_metrics();
        recorder.run_upkeep();
        let text = recorder.render();
        async move { text }
    };
    Router::new()
        .route("/items", get(|| async { "" }))
        .route("/weather/{city}", get(|| async { "" }))
        .layer(limits)
        .route("/metrics", get(render))
}

/// A service that sheds by the requests in flight.
fn shedding() -> Router {
    let capacity = Capacity::in_flight(1).expect("a capacity");
    let shed = ShedLayer::new(capacity).priority(|_| Priority::P1);
    Router::new().route("/", get(|| async { "" }).layer(shed))
}

/// A service whose rules skip, and would deny.
fn skipping() -> Router {
    let rule = |name| Rule::new(name, Quota::gcra(1, HOUR));
    let rules = [
        rule("exempt").by(constant("all")).exempt(|_| true),
        rule("trial").shadow().by(constant("all")),
    ];
    let layer = RateLimitLayer::new(MemoryStore::new(), rules).expect("valid rules");
    Router::new().route("/", get(|| async { "" })).layer(layer)
}

/// A client that goes on is blocked.
async fn block(limiter: &Limiter, who: u64) {
    let check = limiter.check("log-in", &Key::of(who)).expect("it is there");
    for _ in 0..2 {
        let _ = limiter.acquire(&[check]).await;
    }
}

/// A request waits and is admitted. Two wait for an hour and longer: the one in front gives up, and then the other. One finds no
/// free slot.
async fn wait_and_give_up() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = |name, period| {
        let quota = Quota::leaky_bucket(1).leak(1, period);
        Rule::new(name, quota).wait(3 * period)
    };
    let one_at_once = Rule::new("one-at-once", Quota::concurrent(1));
    let rules = [
        rule("paced", SECOND / 20),
        rule("hourly", HOUR),
        one_at_once,
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let checks = |name| [limiter.check(name, &Key::shared()).expect("it is there")];

    // The store's clock stands still: what runs late here takes no place that is free meanwhile.
    let (paced, hourly) = (checks("paced"), checks("hourly"));
    let _ = limiter.acquire(&paced).await;
    let admitted = limiter.acquire_within(&paced, SECOND).await;
    assert!(admitted.is_ok_and(|it| it.is_allowed()));

    let _ = limiter.acquire(&hourly).await;
    let in_front = timeout(SECOND / 100, limiter.acquire_within(&hourly, 3 * HOUR));
    let behind = timeout(SECOND / 10, limiter.acquire_within(&hourly, 3 * HOUR));
    let (first, second) = tokio::join!(in_front, behind);
    assert!(first.is_err() && second.is_err());

    let slot = checks("one-at-once");
    let holder = limiter.acquire(&slot).await;
    let without = limiter.acquire(&slot).await;
    assert!(holder.is_allowed() && !without.is_allowed());
}

/// A server for proxies whose Redis is down, with a second door that is encrypted: their addresses, and that of its metrics.
async fn for_proxies(folder: &Path, recorder: PrometheusHandle) -> [String; 3] {
    let certificate =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let settings = format!(
        "rules = {:?}\nmetrics = '127.0.0.1:0'\n\
         [redis]\naddress = 'redis://127.0.0.1:1'\nnamespace = 'shop'\nplain_keys = true\n\
         [grpc]\nlisten = '127.0.0.1:0'\n\
         [[http]]\nlisten = '127.0.0.1:0'\nstyle = 'forwarded'\n\
         [[http]]\nlisten = '127.0.0.1:0'\nstyle = 'forwarded'\ntls = {{ cert = 'cert', key = 'key' }}\n",
        Path::new(env!("CARGO_MANIFEST_DIR")).join("limits.toml"),
    );
    for (name, text) in [
        ("server.toml", settings),
        ("cert", certificate.cert.pem()),
        ("key", certificate.signing_key.serialize_pem()),
    ] {
        fs::write(folder.join(name), text).expect("written");
    }
    let settings =
        Settings::read(folder.join("server.toml")).unwrap_or_else(|wrong| panic!("{wrong}"));
    let server = tollgate_server::Server::start(settings, Some(recorder)).await;
    let server = server.unwrap_or_else(|wrong| panic!("{wrong}"));
    let [_, http, encrypted, metrics] = server.addresses() else {
        panic!("{:?}", server.addresses());
    };
    let addresses = [http.clone(), encrypted.clone(), metrics.clone()];
    tokio::spawn(server.run(std::future::pending()));
    addresses
}

/// A check, a caller who does not know that the door is encrypted, and a look at the metrics.
async fn ask(addresses: &[String; 3]) {
    let [http, encrypted, metrics] = addresses;
    for url in [
        format!("{http}/check"),
        format!("{encrypted}/check"),
        format!("{metrics}/metrics"),
    ] {
        let curl = tokio::process::Command::new("curl")
            .args([
                "--silent",
                "--header",
                "x-forwarded-method: GET",
                "--header",
                "x-forwarded-uri: /items",
                &url,
            ])
            .output();
        curl.await.expect("curl runs; ./test.sh installs it");
    }
}

async fn preflight(server: &Server) {
    let headers = [
        ("origin", "https://example.org"),
        ("access-control-request-method", "POST"),
    ];
    let _ = server.send("OPTIONS", "/items", &headers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_query_of_dashboards_and_alerts_finds_what_a_service_exposes() {
    // With the buckets of the server for proxies, and of all others.
    let recorder = install_metrics().expect("the only one");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("limits.toml");
    let live = LiveRules::watch(file, Bindings::new()).expect("the file is valid");
    let limits = live.layer(MemoryStore::new()).expect("valid rules");
    let service = Server::start(app(limits, recorder.clone())).await;
    let folder = tempfile::tempdir().expect("a folder");
    let addresses = for_proxies(folder.path(), recorder).await;
    let mut redis = RedisServer::start(&["--maxmemory", "256mb"]).await;
    let store = redis_store(&redis);
    store.connected().await;
    let (limiter, checks) = on_redis(&store);
    // Another version of the service, with another quota.
    let other_store = redis_store(&redis);
    let _other = Limiter::new(other_store, [Rule::new("exact", Quota::gcra(99, HOUR))]);
    let log_in = Rule::new("log-in", Quota::fixed_window(1, HOUR));
    let log_in = log_in.block(Block::after(1).for_each([HOUR]));
    let tokens = Rule::new("tokens", Quota::gcra(1, HOUR)).debt(1).credits();
    let blocking = Limiter::new(MemoryStore::new(), [log_in, tokens]).expect("valid rules");
    let written = Rule::new("written", Quota::fixed_window(9, HOUR)).durable(|_| "all".to_owned());
    let durable = Limiter::new(MemoryStore::new(), [written]).expect("a valid rule");
    let file = format!("sqlite:{}/ledger.db", folder.path().display());
    let ledger = Ledger::open(&file).await.expect("it opens");
    ledger.attach(&durable).expect("it has none");
    let skipping = skipping();
    let shedding = shedding();
    let mut unread = Vec::new();
    let prometheus = Prometheus::start(&service);

    let mut open: Vec<(String, String)> = dashboards().iter().flat_map(queries).collect();
    let number = open.len();
    assert!(number > 60, "{number}");
    #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
    let begin = Instant::now();
    let mut is_redis_up = true;
    for round in 0_u64.. {
        for _ in 0..20 {
            let _ = service
                .send("GET", "/items", &[("x-api-key", "acme")])
                .await;
            let _ = service.get("/weather/Oslo").await;
            let request = Request::get("/").body(Body::empty()).expect("valid");
            let _ = skipping.clone().oneshot(request).await;
            // Two at a time, where there is room for one.
            for _ in 0..2 {
                let request = Request::get("/").body(Body::empty()).expect("valid");
                unread.push(shedding.clone().oneshot(request).await);
            }
            unread.clear();
            for check in &checks {
                let _ = limiter.acquire(&[*check]).await;
            }
            let new = limiter
                .check("capped", &Key::of(round))
                .expect("it is there");
            let _ = limiter.acquire(&[new]).await;
        }
        preflight(&service).await;
        block(&blocking, round).await;
        let written = durable.check("written", &Key::of(round)).expect("a rule");
        let _ = durable.acquire(&[written]).await;
        let tokens = [blocking.check("tokens", &Key::of(round)).expect("a rule")];
        let taken = blocking.acquire(&tokens).await;
        // One is owed, and the rest lapses.
        blocking.ticket(&tokens, &taken).settle(9);
        #[expect(clippy::disallowed_methods, reason = "an end that is to come")]
        let until = SystemTime::now() + HOUR;
        let topped_up = Key::of(("top-up", round));
        let granted = blocking.grant("tokens", &topped_up, 1, until, "order");
        let _ = granted.expect("the rule takes credits").await;
        ask(&addresses).await;
        wait_and_give_up().await;
        open.retain(|(_, query)| !prometheus.has_data(query));
        if open.is_empty() {
            break;
        }
        // What is still open, an outage shows.
        let of_redis = |(_, query): &(String, String)| {
            let needed = ["quota_conflicts", "redis_namespace", "redis_memory_used"];
            needed.iter().any(|name| query.contains(name))
        };
        if is_redis_up && round >= 3 && !open.iter().any(of_redis) {
            redis.kill();
            is_redis_up = false;
        }
        assert!(begin.elapsed() < HANGS, "no data: {open:#?}");
    }

    // The names and labels of all queries are exposed, and those that the guide names.
    let exposed = exposed(&service.get("/metrics").await.body);
    let from_prometheus = ["instance", "job", "le"];
    let mut everything = alert_queries();
    let dashboards = dashboards();
    let of_dashboards = dashboards.iter().flat_map(queries);
    everything.extend(of_dashboards.map(|(_, query)| query));
    for query in &everything {
        for (metric, labels) in selected(query) {
            let there = exposed.get(&metric);
            let there = there.unwrap_or_else(|| panic!("{metric} is not exposed: {query}"));
            for label in labels {
                assert!(
                    there.contains(&label),
                    "{metric} has no label {label}: {query}"
                );
            }
        }
        for label in groups(query) {
            let has = |labels: &BTreeSet<String>| labels.contains(&label);
            let is_known = from_prometheus.contains(&&*label) || exposed.values().any(has);
            assert!(is_known, "nothing has the label {label}: {query}");
        }
    }
    for (page, metric, labels) in named_in_guide() {
        // Log-ins anew are of credentials that change.
        if metric == "tollgate_redis_log_ins_anew_total" {
            continue;
        }
        let there = exposed
            .get(&metric)
            .or_else(|| exposed.get(&format!("{metric}_bucket")));
        let there = there.unwrap_or_else(|| panic!("{metric}, which {page} names, is not exposed"));
        let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
        let of_page = |all: &BTreeSet<String>| all.iter().all(|label| there.contains(&**label));
        match labels {
            // A table has all of them.
            Labels::All(labels) => {
                let has_more = there.len() - usize::from(there.contains("le")) > labels.len();
                assert!(
                    of_page(&labels) && !has_more,
                    "{metric} has the labels {there:?}, and in {page} {labels:?}"
                );
            }
            Labels::Some(labels) => assert!(
                of_page(&labels),
                "{metric} has the labels {there:?}, and {page} names {labels:?}"
            ),
        }
    }

    // Prometheus evaluates each alert without an error.
    let answer = prometheus.ask("rules", "").expect("it answers");
    let groups = answer["data"]["groups"].as_array().expect("groups");
    let alerts: Vec<&Value> = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"))
        .collect();
    assert_eq!(alerts.len(), alert_queries().len());
    for alert in alerts {
        assert_eq!(alert["health"], "ok", "{alert}");
    }
}

#[test]
fn each_alert_is_valid_fires_and_clears() {
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(repository().join("ops/prometheus"))
            .output()
            .unwrap_or_else(|error| panic!("promtool: {error}; ./test.sh installs it"));
        let printed =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
    }
    let tests = read("ops/prometheus/alerts_test.yml");
    for alert in alerts() {
        let fires = format!(
            "alertname: {alert}\n        eval_time: 39m\n        exp_alerts:\n          - exp_labels"
        );
        assert!(tests.contains(&fires), "no test fires {alert}");
        let is_quiet = |at: &str| {
            let quiet =
                format!("alertname: {alert}\n        eval_time: {at}\n        exp_alerts: []");
            tests.contains(&quiet)
        };
        assert!(is_quiet("9m"), "a test has to begin with a quiet {alert}");
        assert!(
            is_quiet("60m") || is_quiet("119m"),
            "no test clears {alert}"
        );
    }
}

fn alerts() -> Vec<String> {
    let text = read("ops/prometheus/alerts.yml");
    let lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    lines.map(str::to_owned).collect()
}

#[test]
fn each_alert_says_what_it_means_and_what_to_do_and_its_link_leads_to_a_heading() {
    let text = read("ops/prometheus/alerts.yml");
    for field in ["summary: '", "meaning: '", "remedy: '", "severity: "] {
        assert_eq!(text.matches(field).count(), alerts().len(), "{field}");
    }
    let links = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook_url: "));
    let links: Vec<&str> = links.collect();
    assert_eq!(links.len(), alerts().len());
    for link in links {
        let path = link
            .strip_prefix("https://docs.rs/")
            .expect("a page of docs.rs");
        let (path, heading) = path.split_once('#').unwrap_or((path, ""));
        let parts: Vec<&str> = path.split('/').collect();
        let [package, "latest", _, "guide", rest @ ..] = &parts[..] else {
            panic!("{link} is no page of a guide");
        };
        let [page, "index.html"] = rest else {
            panic!("{link} leads to no page of the guide");
        };
        let page = page.replace('_', "-");
        let page = read(&format!("crates/{package}/guide/{page}.md"));
        let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
        let slug = |heading: &str| heading.to_lowercase().replace(' ', "-");
        assert!(headings.map(slug).any(|slug| slug == heading), "{link}");
    }
}
