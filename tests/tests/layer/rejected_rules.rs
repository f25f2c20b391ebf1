//! Documents that are rejected while a service runs, and what is said of them.

use std::sync::{Arc, Mutex};

use tollgate_rules::{AuditRecord, AuditSink, Author, Bindings, Format, LiveRules, OperatorEntry};
use tollgate_tests::events::Events;
use tracing::Level;

/// A client's key, which must not be found anywhere.
const KEY: &str = "acme-key-4711";

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

impl AuditSink for Kept {
    fn record(&self, record: &AuditRecord) {
        let lines = record.lines.join("\n");
        self.0.lock().unwrap().extend([record.to_string(), lines]);
    }
}

fn live() -> (Kept, LiveRules) {
    let text = "version = 1\n[[rules]]\nname = 'api'\nlimit = '9/h'\nby = 'constant'\n\
                [[rules]]\nname = 'per-ip'\nlimit = '9/h'\nby = 'client_ip'\n";
    let kept = Kept::default();
    let rules = LiveRules::builder(Bindings::new()).audit(kept.clone());
    (kept, rules.from_text(text, Format::Toml).unwrap())
}

#[test]
fn a_rejected_document_shows_no_key_in_log_status_and_audit() {
    let toml = |entry: &str| {
        let rules = "version = 1\n[[rules]]\nname = 'api'\nlimit = '9/h'\nby = 'constant'\n\
                     [[rules]]\nname = 'per-ip'\nlimit = '9/h'\nby = 'client_ip'\n";
        (Format::Toml, format!("{rules}[[overrides]]\n{entry}\n"))
    };
    let yaml = |entry: &str| {
        let rules = "version: 1\nrules:\n- { name: api, limit: 9/h, by: constant }\n";
        (Format::Yaml, format!("{rules}overrides:\n- {entry}\n"))
    };
    let json = |entry: &str| {
        let rules =
            r#"{"version": 1, "rules": [{"name": "api", "limit": "9/h", "by": "constant"}]"#;
        (Format::Json, format!("{rules}, \"overrides\": [{entry}]}}"))
    };
    let documents = [
        toml(&format!("rule = 'per-ip'\nkey = '{KEY}'\nlimit = '18/h'")),
        toml(&format!(
            "rule = 'per-ip'\nkey = [1, '{KEY}']\nlimit = '18/h'"
        )),
        toml(&format!(
            "rule = 'per-ip'\nkey = {{ {KEY} = 'x' }}\nlimit = '18/h'"
        )),
        toml(&format!("rule = 'per-ip', key = '{KEY}', limit = '18/h'")),
        yaml(&format!("{{ rule: api, key: [{KEY}, x], limit: 18/hh }}")),
        yaml(&format!("rule: api\n  key: |\n    {KEY}\n  limit: 18/h")),
        yaml(&format!(
            "{{ rule: api, key: &k {KEY}, limit: 18/hh }}\n- {{ rule: api, key: *k, limit: 18/hh }}"
        )),
        yaml(&format!("rule: api\n  key: !{KEY}\n  limit: 18/h")),
        json(&format!(
            r#"{{"rule": "api", "key": "{KEY}", "limit": "18/h"}}"#
        )),
        json(&format!(
            r#"{{"rule": "api", "key": "{KEY}", "limit": "18/hh"}}"#
        )),
        json(&format!(
            r#"{{"rule": "api", "key": {KEY}, "limit": "18/h"}}"#
        )),
        json(&format!(
            r#"{{"rule": "api", "key": "{KEY}" "limit": "18/h"}}"#
        )),
    ];
    let (kept, rules) = live();
    let events = Events::listen();
    for (format, text) in &documents {
        let wrong = rules.set_text(text, *format).expect_err(text);
        assert!(wrong.to_string().contains("^"), "{wrong}");
        let status = rules.status();
        let shown = [
            wrong.to_string(),
            format!("{wrong:?}{:?}", wrong.mistakes()),
            status.to_string(),
            status.last_rejection.expect("it is rejected").to_owned(),
        ];
        for shown in shown {
            assert!(!shown.contains(KEY), "{text}\n{shown}");
        }
    }
    let handle = rules.handle(Author::new("alice"));
    for limit in ["18/hh", "18/h"] {
        let wrong = handle.set(OperatorEntry::limit("api", KEY, limit));
        let wrong = wrong.expect_err("the rule has no keys").to_string();
        assert!(!wrong.contains(KEY), "{wrong}");
    }

    let (kept, logged) = (kept.0.lock().unwrap(), events.at(Level::ERROR));
    // Two texts for each record; the first record was made at the start.
    assert_eq!(kept.len() / 2 - 1, documents.len() + 2);
    assert_eq!(logged.len(), documents.len() + 2, "{logged:?}");
    for shown in kept.iter().chain(&logged) {
        assert!(!shown.contains(KEY), "{shown}");
    }
}
