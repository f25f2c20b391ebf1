//! Who changed what in a process.

use std::{
    convert::Infallible,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep};
use tollgate::{MemoryStore, RateLimitLayer};
use tollgate_rules::{
    AuditKind, AuditRecord, AuditSink, Author, Bindings, Format, LiveRules, OperatorEntry,
};
use tower::{Layer, ServiceExt, service_fn};

/// A key that must not be found anywhere.
const KEY: &str = "acme-key-4711";

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<AuditRecord>>>);

impl AuditSink for Kept {
    fn record(&self, record: &AuditRecord) {
        self.0.lock().expect("whole").push(record.clone());
    }
}

impl Kept {
    fn all(&self) -> Vec<AuditRecord> {
        self.0.lock().expect("whole").clone()
    }

    fn last(&self) -> String {
        let all = self.all();
        all.last().expect("there is one").to_string()
    }
}

fn limits(limit: &str) -> String {
    format!("version = 1\n[[rules]]\nname = 'api'\nlimit = '{limit}'\nby = 'header:x-api-key'\n")
}

fn rules() -> (Kept, LiveRules) {
    let kept = Kept::default();
    let rules = LiveRules::builder(Bindings::new())
        .audit(kept.clone())
        .from_text(&limits("fixed_window 2/h"), Format::Toml);
    (kept, rules.expect("valid"))
}

async fn status(layer: &RateLimitLayer) -> StatusCode {
    let service = layer.layer(service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let request = Request::get("/")
        .header("x-api-key", KEY)
        .body(String::new());
    let Ok(response) = service.oneshot(request.expect("a request")).await;
    response.status()
}

#[tokio::test]
async fn changes_of_one_process_are_recorded_with_their_author() {
    let (kept, rules) = rules();
    assert_eq!(
        kept.last(),
        "accepted, revision 0 → 1, by <TOML>: 1 rule to begin with"
    );
    let alice = rules.handle(Author::new("alice").because("ticket 4711"));
    alice
        .replace(limits("fixed_window 3/h"), Format::Toml)
        .expect("valid");
    assert_eq!(
        kept.last(),
        "accepted, revision 1 → 2, by alice, because: ticket 4711: \
         api: fixed_window 2/h → fixed_window 3/h, used units are kept"
    );
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let raised = OperatorEntry::limit("api", KEY, "500/h")
        .until(until)
        .because("launch week");
    alice.set(raised).expect("valid");
    assert_eq!(
        kept.last(),
        "accepted, revision 2 → 2, by alice, because: ticket 4711: \
         api: fixed_window 3/h → fixed_window 500/h for one key until 2100-01-01T00:00:00Z (launch week)"
    );
    alice
        .set(OperatorEntry::switch("*", "50%").because("database is slow"))
        .expect("valid");
    assert!(
        kept.last()
            .ends_with("all rules: 50 % of each limit (database is slow)")
    );
    // A switch takes the place of the one before.
    alice
        .set(OperatorEntry::switch("*", "shadow"))
        .expect("valid");
    let last = kept.all().pop().expect("there is one");
    let mut lines = last.lines.to_vec();
    lines.sort();
    assert_eq!(
        lines,
        [
            "all rules: no longer 50 % of each limit",
            "all rules: shadow"
        ]
    );
    // Of a condition only that it has changed.
    let when = format!("when = {{ header = {{ name = 'x-api-key', equals = '{KEY}' }} }}\n");
    alice
        .replace(limits("fixed_window 3/h") + &when, Format::Toml)
        .expect("valid");
    assert!(kept.last().ends_with("api: when has changed"));
    assert!(alice.set(OperatorEntry::switch("api", "offf")).is_err());
    let last = kept.all().pop().expect("there is one");
    assert_eq!(
        (last.kind, last.before, last.after),
        (AuditKind::Rejected, 3, 3)
    );
    assert!(last.lines[0].contains("did you mean \"off\"?"), "{last}");
    alice.clear().expect("valid");
    let last = kept.all().pop().expect("there is one");
    assert_eq!(last.lines.len(), 2, "{last}");
    for record in kept.all() {
        assert!(!format!("{record:?}").contains(KEY), "{record}");
    }
}

/// Panics at the first change.
#[derive(Clone, Default)]
struct Panics(Kept);

impl AuditSink for Panics {
    fn record(&self, record: &AuditRecord) {
        self.0.record(record);
        assert_ne!(self.0.all().len(), 2, "the first change");
    }
}

#[test]
fn a_sink_that_panics_hinders_neither_a_change_nor_other_sinks() {
    let (panics, kept) = (Panics::default(), Kept::default());
    let rules = LiveRules::builder(Bindings::new())
        .audit(panics.clone())
        .audit(kept.clone())
        .from_text(&limits("fixed_window 2/h"), Format::Toml);
    let rules = rules.expect("valid");
    for (n, limit) in [(2, "fixed_window 3/h"), (3, "fixed_window 4/h")] {
        let changes = rules.set_text(&limits(limit), Format::Toml);
        changes.expect("it is in force");
        assert_eq!(rules.status().revision, n);
    }
    assert_eq!((panics.0.all().len(), kept.all().len()), (3, 3));
}

#[tokio::test]
async fn what_is_set_in_a_process_stays_when_the_document_changes() {
    let (_, rules) = rules();
    let layer = rules.layer(MemoryStore::new()).expect("valid rules");
    let alice = rules.handle(Author::new("alice"));
    alice
        .set(OperatorEntry::limit("api", KEY, "1/h"))
        .expect("valid");
    rules
        .set_text(&limits("fixed_window 9/h"), Format::Toml)
        .expect("valid");
    assert_eq!(status(&layer).await, StatusCode::OK);
    assert_eq!(status(&layer).await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn what_is_set_for_a_rule_that_is_gone_ends_alone() {
    let (_, rules) = rules();
    let layer = rules.layer(MemoryStore::new()).expect("valid rules");
    let alone = limits("fixed_window 9/h");
    let other = "[[rules]]\nname = 'web'\nlimit = '9/h'\nby = 'header:x-api-key'\n";
    rules
        .set_text(&format!("{alone}{other}"), Format::Toml)
        .expect("valid");
    let alice = rules.handle(Author::new("alice"));
    for (rule, limit) in [("api", "fixed_window 1/h"), ("web", "5/h")] {
        let entry = OperatorEntry::limit(rule, KEY, limit);
        alice.set(entry).expect("valid");
    }
    rules.set_text(&alone, Format::Toml).expect("valid");
    assert_eq!(status(&layer).await, StatusCode::OK);
    assert_eq!(status(&layer).await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn the_end_of_a_switch_is_recorded_and_a_subscriber_hears_of_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, limits("fixed_window 2/h")).expect("written");
    let kept = Kept::default();
    let rules = LiveRules::builder(Bindings::new())
        .audit(kept.clone())
        .watch(folder.path());
    let rules = rules.expect("valid");
    // It is of all files.
    let author = kept.all()[0].author.clone();
    assert_eq!(Path::new(author.actor()), folder.path());
    let mut updates = rules.subscribe();
    let soon = SystemTime::UNIX_EPOCH
        + Duration::from_micros(tollgate::clock::Clock::system().now() + 1_500_000);
    let halved = OperatorEntry::switch("*", "50%").until(soon);
    rules
        .handle(Author::new("alice"))
        .set(halved)
        .expect("valid");
    updates.next().await;
    assert_eq!(rules.document().limiter_rules()[0].quota().limit(), 1);
    let begin = Instant::now();
    // A change of the file wakes those who look at the time.
    while kept.all().last().expect("there is one").kind != AuditKind::Expired {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", kept.last());
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rules.document().limiter_rules()[0].quota().limit(), 2);
}
