//! Rules at the edge: which side has them, and descriptors.

use http::request::Parts;
use tollgate::RateLimitLayer;
use tollgate_rules::{
    Bindings, Format, RuleDocument,
    operators::{Descriptor, Explained},
};

use crate::{get, passing};

fn read(text: &str, bindings: &Bindings) -> RuleDocument {
    RuleDocument::parse(text, Format::Toml, bindings).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn descriptor(domain: &str, entries: &[(&str, &str)]) -> Descriptor {
    Descriptor::new(domain, entries.iter().copied())
}

fn head(descriptor: Descriptor) -> Parts {
    let (mut head, ()) = http::Request::new(()).into_parts();
    descriptor.describe(&mut head);
    head
}

const SHARED: &str = r#"
    version = 1
    client_ip = { header = "x-forwarded-for", trusted_proxies = ["10.0.0.0/8"] }
    rules = [
        { name = "everywhere", limit = "fixed_window 9/min", by = "client_ip" },
        { name = "edge", limit = "fixed_window 3/min", by = "client_ip", at = "edge", when = { path = "/a" } },
        { name = "service", limit = "concurrent 1", by = "handler", at = "service" },
        { name = "broad", limit = "fixed_window 6/min", by = "client_ip" },
    ]
    groups = [{ name = "all", rules = ["edge", "broad"] }]
"#;

#[tokio::test]
async fn a_shared_document_has_the_rules_of_its_reader() {
    // In a service the rule of the edge counts nothing, and does not stand in for another of its group.
    let service = read(SHARED, &Bindings::new());
    assert_eq!(passing(service.rules(), || get("/a")).await, 6);
    let at_edge = Bindings::new()
        .client_ip(tollgate::key::client_ip())
        .at_edge();
    let edge = read(SHARED, &at_edge);
    assert_eq!(passing(edge.rules(), || get("/a")).await, 3);
    let head = get("/a").into_parts().0;
    let elsewhere = |document: &RuleDocument| {
        let mut explained = document.explain(&head);
        explained.retain(|rule| rule.outcome == Explained::Elsewhere);
        explained
            .into_iter()
            .map(|rule| rule.rule)
            .collect::<Vec<_>>()
    };
    assert_eq!(elsewhere(&service), ["edge"]);
    assert_eq!(elsewhere(&edge), ["service"]);
}

#[test]
fn a_service_runs_with_rules_of_the_edge_alone() {
    let text =
        "version = 1\n[[rules]]\nname = 'a'\nat = 'edge'\nlimit = '5/s'\nby = 'descriptor:to'\n";
    let store = tollgate::MemoryStore::new();
    assert!(RateLimitLayer::new(store, read(text, &Bindings::new()).rules()).is_ok());
}

#[test]
fn conditions_on_descriptors_are_exact_and_ordered() {
    let matches = |when: &str, domain: &str, entries: &[(&str, &str)]| {
        let text = format!(
            "version = 1\n[[rules]]\nname = 'a'\nlimit = '5/s'\nby = 'constant'\nwhen = {when}\n"
        );
        let document = read(&text, &Bindings::new().at_edge());
        document.explain(&head(descriptor(domain, entries)))[0].counts()
    };
    let when = "{ domain = 'sms', descriptor = [{ kind = 'alert' }, 'to'] }";
    let to = ("to", "+44");
    assert!(matches(when, "sms", &[("kind", "alert"), to]));
    for (domain, entries) in [
        ("mail", &[("kind", "alert"), to][..]),
        ("sms", &[("kind", "other"), to]),
        ("sms", &[to, ("kind", "alert")]),
        ("sms", &[("kind", "alert")]),
        ("sms", &[("kind", "alert"), to, to]),
        ("sms", &[]),
    ] {
        assert!(!matches(when, domain, entries), "{domain} {entries:?}");
    }
    for (pattern, value, holds) in [
        ("/api/*", "/api/", true),
        ("/api/*", "/ap", false),
        ("a*b", "ab", true),
        ("ab*ba", "aba", false),
        ("a*x*y*b", "a-x-y-b", true),
        ("a*x*y*b", "a-y-x-b", false),
        ("*", "", true),
    ] {
        let when = format!("{{ descriptor = [{{ path = '{pattern}' }}] }}");
        assert_eq!(
            matches(&when, "", &[("path", value)]),
            holds,
            "{pattern} {value}"
        );
    }
    assert!(matches("{ not = { domain = 'sms' } }", "mail", &[]));
}

#[test]
fn a_rule_by_an_entry_counts_the_descriptors_that_have_it() {
    let text = "version = 1\n[[rules]]\nname = 'a'\nlimit = '5/s'\nby = ['descriptor:to', 'descriptor:kind']\n\
        [[overrides]]\nrule = 'a'\nkey = ['+44', 'alert']\nlimit = '7/s'\n";
    let document = read(text, &Bindings::new().at_edge());
    let explain = |entries: &[(&str, &str)]| {
        let explained = document.explain(&head(descriptor("", entries))).remove(0);
        (
            explained.counts(),
            explained.is_shared(),
            explained.quota.limit(),
            explained.key,
        )
    };
    let alert = ("kind", "alert");
    let (counts, _, limit, key) = explain(&[("to", "+44"), alert]);
    assert_eq!((counts, limit), (true, 7));
    // Not by the order, and by each entry of a name.
    assert_eq!(explain(&[alert, ("other", ""), ("to", "+44")]).3, key);
    assert_ne!(explain(&[("to", "+44"), ("to", "+45"), alert]).3, key);
    assert_eq!(explain(&[("to", "+44")]), (false, false, 5, None));
    assert!(explain(&[("to", ""), alert]).1);
    let (bare, ()) = http::Request::new(()).into_parts();
    assert!(!document.explain(&bare)[0].counts());
    assert_eq!(
        format!("{:?}", descriptor("sms", &[("to", "+44")])),
        "Descriptor(Words(3))"
    );
}
