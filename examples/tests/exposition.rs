//! What an application names, in the format that Prometheus scrapes: it breaks no line.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use axum::{Router, body::Body, routing::get};
use http::Request;
use metrics_exporter_prometheus::PrometheusBuilder;
use tollgate::{
    MINUTE, MemoryStore, Quota, RateLimitLayer, Rule,
    key::{KeyBuf, header},
    observe::{TopKeysEndpoint, flush_metrics},
};
use tollgate_tests::events::Events;
use tower::ServiceExt as _;

/// Quotes, ends of lines, a forged series, escape sequences, and what is written from right to left.
const HOSTILE: &str = "a\" b' c\\ d\\n\n# TYPE forged counter\r\nforged_total{x=\"y\"} 1\u{2028}\u{85}\u{b}\u{202e}txet\u{2066}\u{200f} שלום \u{1b}[2J\0";

/// A request under a rule whose plan, type of subject and label are so called, on a route of such a name.
async fn send(name: &'static str) -> String {
    let rule = Rule::new("planned", Quota::fixed_window(3, MINUTE))
        .subject_type(name)
        .plan(name, Quota::fixed_window(1, MINUTE))
        .label(move |_: &KeyBuf| name.to_owned())
        .by(header("x-api-key"))
        .plan_by(move |_| Some(name));
    let layer = RateLimitLayer::new(MemoryStore::new(), [rule]).expect("a valid rule");
    let route: String = name.chars().filter(|c| !"{}".contains(*c)).collect();
    let app = Router::new()
        .route(&format!("/{route}/{{id}}"), get(|| async {}))
        .fallback(|| async {})
        .layer(layer.clone());
    for key in ["acme", "acme", "acme"] {
        let request = Request::get("/x").header("x-api-key", key);
        let request = request.body(Body::empty()).expect("a request");
        let _ = app.clone().oneshot(request).await;
    }
    let body = TopKeysEndpoint::new([&layer]).respond().into_body();
    String::from_utf8(body.to_vec()).expect("text")
}

/// The values of the labels of a series. `None`: the line is none.
fn labels(line: &str) -> Option<Vec<String>> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut labels = Vec::new();
    let mut rest = rest.strip_prefix('{').unwrap_or(rest);
    while let Some((label, value)) = rest.split_once("=\"") {
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next()?.1 {
                    'n' => text.push('\n'),
                    c @ ('"' | '\\') => text.push(c),
                    _ => return None,
                },
                (_, c) => text.push(c),
            }
        };
        if !label.trim_start_matches(',').chars().all(is_name) {
            return None;
        }
        labels.push(text);
        rest = &value[end..];
    }
    let rest = rest.strip_prefix('}').unwrap_or(rest);
    let is_value = rest.strip_prefix(' ')?.parse::<f64>().is_ok();
    (name.chars().all(is_name) && is_value).then_some(labels)
}

#[tokio::test]
async fn what_an_application_names_breaks_no_line() {
    // The guard borrows its recorder, and the process ends soon.
    let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
    let exposed = recorder.handle();
    let _guard = ::metrics::set_default_local_recorder(recorder);
    let events = Events::listen();
    let long: &str = Box::leak((HOSTILE.to_owned() + &"x".repeat(65_536)).into_boxed_str());
    let mut shown = Vec::new();
    for name in [HOSTILE, long] {
        shown.push(send(name).await);
    }
    flush_metrics();
    let page = exposed.render();

    let is_harmless = |c: char| {
        !c.is_control() && !matches!(c, '\u{2028}'..='\u{202e}' | '\u{200f}' | '\u{2066}')
    };
    let (mut series, mut longest) = (0, 0);
    for line in page.lines() {
        if line.is_empty()
            || line.starts_with("# HELP tollgate_")
            || line.starts_with("# TYPE tollgate_")
        {
            continue;
        }
        let labels = labels(line).unwrap_or_else(|| panic!("this is no series: {line:?}"));
        assert!(line.starts_with("tollgate_"), "{line}");
        for label in labels {
            assert!(label.chars().all(is_harmless), "{label:?}");
            longest = longest.max(label.chars().count());
        }
        series += 1;
    }
    // Those of the plans are there, cut off.
    assert!(
        series > 10 && page.contains("plan=\"a\\\" b' c\\\\ d"),
        "{page}"
    );
    assert_eq!(longest, 64);

    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("promtool: {error}; ./test.sh installs it"));
    let mut input = promtool.stdin.take().expect("it reads");
    input.write_all(page.as_bytes()).expect("it reads all");
    drop(input);
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    // 3: it reads the page, and has advice on names.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    assert!(!said.contains("error while"), "{said}");

    // A rule of such a name is refused, and the refusal is one line too.
    for name in [HOSTILE, long] {
        let rule = Rule::new(name, Quota::per_second(1)).by(header("x-api-key"));
        let refused = RateLimitLayer::new(MemoryStore::new(), [rule]);
        shown.push(refused.expect_err("it is no name").to_string());
    }
    // The log and the top keys have it too.
    let logged = events.recorded();
    assert!(logged.len() >= 2, "{logged:?}");
    shown.extend(logged.into_iter().map(|event| event.fields));
    for text in shown {
        assert!(text.chars().all(is_harmless), "{text:?}");
        assert!(text.len() < 4_096 && !text.contains("acme"), "{text}");
    }
}
