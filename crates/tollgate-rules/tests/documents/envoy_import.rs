//! Configurations of envoyproxy/ratelimit as rules: what another reading of it answers, and what is refused.

use std::{convert::Infallible, env, process::Command};

use http::{Request, Response};
use serde_json::Value;
use tollgate::{
    MemoryStore, RateLimitLayer,
    clock::{Clock, ManualClock},
};
use tollgate_rules::{
    Bindings, Format, RuleDocument,
    operators::{Descriptor, Explained, import_envoy},
};
use tower::{Layer, ServiceExt, service_fn};

fn read(text: &str) -> RuleDocument {
    let bindings = Bindings::new().at_edge();
    RuleDocument::parse(text, Format::Toml, &bindings)
        .unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
}

/// The texts of `tests/python/ratelimit_matcher.py`, one for each configuration.
fn configurations(count: usize) -> Vec<Value> {
    let python = env::var_os("TOLLGATE_PYTHON").unwrap_or_else(|| "python3".into());
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/python/ratelimit_matcher.py"
    );
    let run = Command::new(&python)
        .args([script, &count.to_string()])
        .output();
    let run =
        run.unwrap_or_else(|error| panic!("{} could not be started: {error}", python.display()));
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let lines = String::from_utf8(run.stdout).expect("text");
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn texts(value: &Value) -> Vec<&str> {
    let all = value.as_array().expect("a list").iter();
    all.map(|text| text.as_str().expect("a text")).collect()
}

#[tokio::test]
async fn an_imported_configuration_decides_as_another_reading_of_it() {
    let (mut limits, mut denials, mut overrides) = (0, 0, 0);
    for configuration in configurations(200) {
        let files = texts(&configuration["files"]);
        let imported = import_envoy(files.iter().map(|file| ("ratelimit.yaml", *file)));
        let text = match imported {
            Ok(text) => text,
            // One without a limit makes no rule.
            Err(wrong) if wrong.to_string().contains("there is no rule") => continue,
            Err(wrong) => panic!("{wrong}\n{}", files.join("---\n")),
        };
        overrides += text.matches("[[overrides]]").count();
        let document = read(&text);
        let clock = Clock::from(ManualClock::new(1_767_268_800_000_000));
        let store = MemoryStore::builder().clock(clock).build();
        let layer = RateLimitLayer::new(store, document.rules()).expect("valid");
        let service = layer.layer(service_fn(async |_: Request<String>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        for request in configuration["requests"].as_array().expect("a list") {
            let entries = request["entries"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|entry| {
                    let entry = texts(entry);
                    (entry[0].to_owned(), entry[1].to_owned())
                });
            let domain = request["domain"].as_str().expect("a text");
            let (mut parts, body) = Request::new(String::new()).into_parts();
            Descriptor::new(domain, entries).describe(&mut parts);
            let explained = document.explain(&parts).into_iter();
            let counting = explained.filter(|rule| rule.counts()).map(|rule| {
                let shadow = rule.outcome == Explained::Shadows;
                (rule.quota.limit(), rule.quota.period().as_secs(), shadow)
            });
            let answer = &request["answer"];
            let expected = answer.is_object().then(|| {
                let number = |name: &str| answer[name].as_u64().expect("a number");
                (number("units"), number("seconds"), answer["shadow"] == true)
            });
            let shown = || format!("{request}\n{}\n{text}", files.join("---\n"));
            assert!(counting.eq(expected), "{}", shown());
            let Ok(response) = service
                .clone()
                .oneshot(Request::from_parts(parts, body))
                .await;
            let passes = answer.is_null() || answer["passes"] == true;
            assert_eq!(response.status().is_success(), passes, "{}", shown());
            limits += usize::from(expected.is_some());
            denials += usize::from(!passes);
        }
    }
    assert!(
        limits > 5_000 && denials > 1_000 && overrides > 20,
        "{limits} {denials} {overrides}"
    );
}

#[test]
fn what_rules_cannot_say_is_refused_by_name_with_its_line() {
    let refused = |yaml: &str, parts: &[&str]| {
        let wrong = import_envoy([("a.yaml", yaml)])
            .expect_err(yaml)
            .to_string();
        for part in parts {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
    };
    refused(
        include_str!("../envoy/refused.yaml"),
        &[
            "a.yaml:4:5: unknown field \"quota_mode\"",
            "a.yaml:5:5: unknown field \"metadata\"",
            "a.yaml:6:55: unknown field \"replaces\"",
            "a.yaml:7:10: stars of keys have no counterpart",
            "a.yaml:10:29: unknown unit \"fortnight\"",
            "a.yaml:11:46: only a value with a star is shared",
            "a.yaml:12:72: the values of this key count together in one of two places",
            "a.yaml:13:5: there is a descriptor with this key and value already",
            "a.yaml:14:15: unknown field \"vlaue\" in a descriptor; expected one of key",
        ],
    );
    refused("descriptors: []", &["there is no domain"]);
    refused("domain: a", &["there is no rule"]);
    refused("domain: [", &["this is not YAML"]);
}

#[test]
fn of_domains_that_share_a_name_the_first_file_has_it() {
    let file = |domain: &str| {
        format!(
            "domain: {domain}\ndescriptors: [{{ key: to, rate_limit: {{ name: own, unit: day, requests_per_unit: 5 }} }}]\n"
        )
    };
    let files = ["web", "api"].map(file);
    let imported = import_envoy(files.iter().map(|file| ("a.yaml", &**file)));
    let document = read(&imported.expect("right"));
    assert_eq!(document.names().collect::<Vec<_>>(), ["own", "api:to"]);
}

#[test]
fn an_import_reads_as_if_it_were_written_by_hand() {
    let imported = import_envoy([("sms.yaml", include_str!("../envoy/sms.yaml"))]);
    let by_hand = include_str!("../envoy/sms.toml");
    assert_eq!(imported.expect("right"), by_hand);
}
