//! `tollgate replay`.

use std::{collections::HashMap, convert::Infallible, fs, io::Write as _, net::IpAddr};

use flate2::{Compression, write::GzEncoder};
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Bytes;
use serde_json::Value;
use tollgate::{MemoryStore, RateLimitLayer, clock::ManualClock, key::PeerAddr};
use tollgate_rules::{Bindings, Format, RuleDocument};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{Program, assert_harmless, words};

const RULES: &str = r#"
version = 1

[[rules]]
name = "per-address"
limit = "4/min burst 5"
by = "client_ip"

[[rules]]
name = "searches"
limit = "sliding_window 3/min"
by = ["query:user", "method"]
when = { path = "/search" }
missing = "skip"

[[rules]]
name = "log-ins"
limit = "sliding_log 4/min"
by = "client_ip"
when = { path = "/login" }
count_if = { status = [401] }
"#;

fn rules(by: &str, limit: &str) -> String {
    format!("version = 1\n[[rules]]\nname = \"api\"\nlimit = \"{limit}\"\nby = \"{by}\"\n")
}

/// The rule with this name, in what a replay prints as JSON.
fn rule<'a>(json: &'a Value, name: &str) -> &'a Value {
    let rules = json["rules"].as_array().expect("rules");
    rules.iter().find(|rule| rule["rule"] == name).expect(name)
}

/// A line as nginx and Apache write it, at a second of the 27th of November 2026.
fn line(client: &str, second: u64, request: &str, status: u16) -> String {
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let time = format!("27/Nov/2026:{hour:02}:{minute:02}:{:02} +0000", second % 60);
    format!("{client} - - [{time}] \"{request} HTTP/1.1\" {status} 512 \"-\" \"curl/8\"\n")
}

/// As many denials of each client, under each rule, and the same first ones, as the layer has on a clock of the test's own.
#[tokio::test]
async fn twenty_thousand_lines_give_what_the_layer_gives() {
    let mut random = 7_u64;
    let mut number = move |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let midnight = 1_795_737_600_u64;
    let (mut log, mut requests, mut second) = (String::new(), Vec::new(), 0);
    while requests.len() < 20_000 {
        let in_second = number(9);
        for index in 0..in_second {
            let client = number(40) * number(40) / 40;
            let client = match client % 4 {
                0 => format!("2001:db8:0:{client:x}::1"),
                _ => format!("192.0.2.{client}"),
            };
            let (path, status) = match number(4) {
                0 => (format!("/search?user={}", number(200)), 200),
                1 => ("/login".to_owned(), if number(2) == 0 { 401 } else { 200 }),
                _ => ("/items/7".to_owned(), 200),
            };
            log += &line(&client, second, &format!("GET {path}"), status);
            let at = (midnight + second) * 1_000_000 + index * 1_000_000 / in_second;
            requests.push((client, at, path, status));
        }
        second += 1;
    }
    let document = RuleDocument::parse(RULES, Format::Toml, &Bindings::new()).expect("rules");
    let clock = ManualClock::new(0);
    let store = MemoryStore::builder().clock(&clock).build();
    let layer = RateLimitLayer::new(store, document.rules())
        .expect("rules")
        .attach_decision();
    let (mut expected, mut denied) = (HashMap::new(), 0_u64);
    for (index, (client, at, path, status)) in requests.iter().enumerate() {
        clock.set(*at);
        let mut request = Request::get(&**path)
            .body(Empty::<Bytes>::new())
            .expect("a request");
        let address: IpAddr = client.parse().expect("an address");
        request
            .extensions_mut()
            .insert(PeerAddr((address, 0).into()));
        let answer = Response::builder()
            .status(*status)
            .body(Empty::<Bytes>::new());
        let answer = answer.expect("a response");
        let service = layer.layer(service_fn(move |_| {
            std::future::ready(Ok::<_, Infallible>(answer.clone()))
        }));
        let response = service.oneshot(request).await.expect("it is infallible");
        let Some(decision) = response.extensions().get::<tollgate::Decision>() else {
            continue;
        };
        denied += 1;
        for verdict in decision
            .verdicts()
            .iter()
            .filter(|it| it.outcome() == tollgate::decision::Outcome::Deny)
        {
            let limiter = layer.limiter();
            let rule = &limiter.rules().rules()[verdict.rule()];
            let by_rule = expected
                .entry(rule.name().to_owned())
                .or_insert((0_u64, index + 1));
            by_rule.0 += 1;
        }
    }
    assert!(expected.len() == 3 && denied > 1_000, "{expected:?}");
    let program = Program::new()
        .file("limits.toml", RULES)
        .file("access.log", &log);
    let (code, json) = program.json(&words("replay access.log --rules limits.toml --most 1000"));
    assert_eq!(
        (code, &json["denied"][0], &json["broken"]),
        (1, &denied.into(), &0.into())
    );
    let clients = json["clients"].as_array().expect("clients");
    for (name, (times, first)) in expected {
        assert_eq!(rule(&json, &name)["denied"], times, "{name}");
        let first = format!("access.log:{first}");
        assert!(
            clients
                .iter()
                .any(|it| it["rule"] == *name && it["line"] == *first),
            "{name}: {first}"
        );
    }
}

/// Each log has the same five requests of one client in a second or so, of which a limit of three denies two.
#[test]
fn each_format_and_each_disorder_is_read() {
    let nginx =
        line("192.0.2.7", 0, "GET /", 200).replace("curl/8", r#"a \x22quoted\x22 \"agent\" \\"#);
    let huge = format!("{}\n", "x".repeat((1 << 20) + 9));
    let alb = |millis: u32| {
        format!(
            "https 2026-11-27T00:00:00.{millis:03}000Z app/my/5 192.0.2.7:2817 10.0.0.1:80 0.001 0.002 -1 200 200 34 366 \"GET \
             https://www.example.com:443/search?q=1 HTTP/2.0\" \"curl/8\" ECDHE TLSv1.3 arn \"Root=1\" \"d\" \"c\" 0 \
             2026-11-27T00:00:00Z \"forward\" \"-\" \"-\"\n"
        )
    };
    let envoy = |millis: u32| {
        format!(
            "[2026-11-27T00:00:00.{millis:03}Z] \"GET /a HTTP/2\" 200 - 0 12 {} 7 \"203.0.113.9, 192.0.2.7\" \"curl/8\" \"id\" \"host\" \
             \"10.0.0.1:80\"\n",
            // The first to begin is the last to end.
            1_000 - millis
        )
    };
    let json = |index: u32| {
        format!(
            "{{\"time_iso8601\": \"2026-11-27T00:00:00+00:00\", \"remote_addr\": \"192.0.2.7\", \"status\": 200, \"req\": {{\"url\": \"/?{index}\"}}}}\n"
        )
    };
    let zones = [
        "27/Nov/2026:01:00:00 +0100",
        "26/Nov/2026:19:00:00 -0500",
        "27/Nov/2026:05:30:00 +0530",
    ];
    let zones = zones.map(|zone| nginx.replace("27/Nov/2026:00:00:00 +0000", zone));
    let strange = "x\n\n  \r\n192.0.2.7 - - [31/Feb/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n";
    for (name, log, args, broken) in [
        ("nginx", nginx.repeat(5), &[][..], 0),
        ("with a BOM", format!("\u{feff}{}", nginx.repeat(5)), &[], 0),
        ("with CRLF", nginx.repeat(5).replace('\n', "\r\n"), &[], 0),
        (
            "no line feed at the end",
            nginx.repeat(5).trim_end().to_owned(),
            &["--format", "combined"],
            0,
        ),
        ("zones", zones.concat() + &nginx.repeat(2), &[], 0),
        (
            "IPv6",
            nginx.repeat(5).replace("192.0.2.7", "2001:db8::7"),
            &[],
            0,
        ),
        (
            "strange and huge lines",
            nginx.repeat(4) + strange + &huge + &nginx,
            &[],
            3,
        ),
        (
            "no request",
            nginx.repeat(5) + &nginx.replace("GET / HTTP/1.1", r"\x16\x03\x01"),
            &[],
            1,
        ),
        (
            "common",
            "192.0.2.7 - - [27/Nov/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n".repeat(5),
            &[],
            0,
        ),
        ("alb", (0..5).map(alb).collect(), &[], 0),
        (
            "alb, IPv6",
            (0..5)
                .map(alb)
                .collect::<String>()
                .replace("192.0.2.7", "[2001:db8::7]"),
            &[],
            0,
        ),
        ("envoy", (0..5).rev().map(envoy).collect(), &[], 0),
        (
            "json",
            (0..5).map(json).collect(),
            &["--field", "request_uri=req.url"],
            0,
        ),
        (
            "json of Caddy",
            "{\"ts\":1795737600.1,\"request\":{\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\"uri\":\"/a\"}}\n".repeat(5),
            &[],
            0,
        ),
        (
            "a format of its own",
            "1795737600.001 192.0.2.7 GET /a?b=c 200 0.010\n".repeat(5),
            &[
                "--format",
                "$msec $remote_addr $request_method $request_uri $status $request_time",
            ],
            0,
        ),
        // A second later three others would fit, and the clock does not show it.
        (
            "a clock that goes back",
            (nginx.replace("00:00:00", "02:00:00").repeat(5)) + &nginx.repeat(5),
            &[],
            0,
        ),
    ] {
        let program = Program::new()
            .file("limits.toml", &rules("client_ip", "sliding_log 3/d"))
            .file("a.log", &log);
        let args = [&["replay", "a.log", "--rules", "limits.toml"], args].concat();
        program.run(&args).lacks(&["is not trusted"]);
        let (_, json) = program.json(&args);
        let requests = json["requests"].as_u64().unwrap_or_default();
        assert_eq!(
            (rule(&json, "api")["denied"].as_u64(), &json["broken"]),
            (requests.checked_sub(3), &broken.into()),
            "{name}: {json}"
        );
        assert!(requests >= 5, "{name}: {json}");
    }
}

#[test]
fn requests_count_when_they_began_and_hold_slots_until_they_ended() {
    // Each takes two seconds, and one begins each second, in the order of their ends, but for one that is older.
    let at = |second: u64, took: u64| {
        format!("{}.000 192.0.2.7 {took}.000 200\n", 1_795_737_600 + second)
    };
    let log: String = (2..12)
        .map(|second| at(second, 2))
        .chain([at(12, 12)])
        .collect();
    let program = Program::new().file("a.log", &log);
    let format = "$msec $remote_addr $request_time $status";
    let denied = |limit: &str| {
        let program = fs::write(
            program.folder().join("limits.toml"),
            rules("client_ip", limit),
        );
        program.expect("a file");
    };
    denied("concurrent 2");
    let (_, json) = program.json(&[
        "replay",
        "a.log",
        "--rules",
        "limits.toml",
        "--format",
        format,
    ]);
    // The old one holds a slot from the start; of the others, each second one finds the other.
    assert_eq!(rule(&json, "api")["denied"], 5, "{json}");
    denied("1/s");
    let (_, json) = program.json(&[
        "replay",
        "a.log",
        "--rules",
        "limits.toml",
        "--format",
        format,
    ]);
    assert_eq!(
        (&rule(&json, "api")["denied"], &json["late"]),
        (&1.into(), &0.into()),
        "{json}"
    );
    // Without durations nobody knows.
    let ran = program.run(&words(
        "replay a.log --rules limits.toml --format '$msec $remote_addr $- $status'",
    ));
    ran.assert(0, &["11 requests", "no line has a path"]);
    denied("concurrent 2");
    program
        .run(&words(
            "replay a.log --rules limits.toml --format '$msec $remote_addr $- $status'",
        ))
        .assert(2, &["it has slots"]);
}

#[test]
fn compressed_logs_are_taken_together_and_one_that_breaks_off_says_so() {
    let pack = |text: &str| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(text.as_bytes()).expect("it is memory");
        packed.finish().expect("it is memory")
    };
    let program = Program::new().file("limits.toml", &rules("client_ip", "sliding_log 3/d"));
    let all: Vec<String> = (0..2_000)
        .map(|second| line(&format!("192.0.2.{}", second % 200), second, "GET /", 200))
        .collect();
    let write =
        |name: &str, bytes: &[u8]| fs::write(program.folder().join(name), bytes).expect("a file");
    // Two members, as after `cat`; and the lines of two servers, each in order.
    write(
        "a.gz",
        &[pack(&all[..300].concat()), pack(&all[300..700].concat())].concat(),
    );
    write(
        "b.log",
        all[700..]
            .iter()
            .step_by(2)
            .cloned()
            .collect::<String>()
            .as_bytes(),
    );
    write(
        "c.log",
        all[700..]
            .iter()
            .skip(1)
            .step_by(2)
            .cloned()
            .collect::<String>()
            .as_bytes(),
    );
    let (_, json) = program.json(&["replay", "c.log", "a.gz", "b.log", "--rules", "limits.toml"]);
    assert_eq!(
        (
            &json["requests"],
            &json["late"],
            &rule(&json, "api")["denied"]
        ),
        (&2_000.into(), &0.into(), &1_400.into())
    );
    let whole = pack(&all.concat());
    // The first sixth denies nobody.
    for (sixths, code) in [(4, 1), (1, 3)] {
        write("cut.gz", &whole[..whole.len() * sixths / 6]);
        program
            .run(&["replay", "cut.gz", "--rules", "limits.toml"])
            .assert(code, &["cut.gz breaks off after", "api"]);
    }
    let piped = program.shell("gzip -c b.log | tollgate replay - --rules limits.toml");
    piped.assert(1, &["650 lines, 650 requests"]);
    program
        .run(&["replay", "none.log", "--rules", "limits.toml"])
        .assert(3, &["none.log cannot be read"]);
    write("empty.log", b"");
    program
        .run(&["replay", "empty.log", "--rules", "limits.toml"])
        .assert(3, &["the log is empty"]);
    let format = r#"$remote_addr - - [$time_local] "$request" $status"#;
    program
        .run(&[
            "replay",
            "b.log",
            "--rules",
            "limits.toml",
            "--format",
            format,
        ])
        .assert(3, &["does the format say all of the line"]);
}

#[test]
fn what_a_log_lacks_is_named_and_no_key_is_shown() {
    let hostile = "\"key-4711\u{202e}b\"";
    let log: String = (0..9)
        .map(|second| line("192.0.2.7", second * 20, "GET /a", 429).replace("\"curl/8\"", hostile))
        .collect();
    let document = rules("header:user-agent", "sliding_window 4/min")
        + "[[rules]]\nname = \"per-key\"\nlimit = \"1/s\"\nby = \"header:x-api-key\"\n"
        + "[[rules]]\nname = \"tenants\"\nlimit = \"1/s\"\nby = \"tenant\"\nwait = \"1s\"\n";
    let program = Program::new()
        .file("a.log", &log)
        .file("limits.toml", &document);
    let program = program.file(
        "tight.toml",
        &rules("header:user-agent", "sliding_window 2/min"),
    );
    let run = |args: &[&str]| {
        program.run(
            &[
                &["replay", "a.log", "--rules", "limits.toml", "--bind"],
                args,
            ]
            .concat(),
        )
    };
    let ran = run(&["key:tenant"]);
    assert_harmless(ran.assert(
        0,
        &[
            "left out of limits.toml: per-key",
            "left out of limits.toml: tenants",
            "9 requests were answered 429",
        ],
    ));
    ran.lacks(&["key-4711"]);
    // With a value it counts.
    let ran = run(&["key:tenant=acme", "--field", "request_uri=req.url"]);
    ran.assert(0, &["tenants", "nothing there"])
        .lacks(&["limits.toml: tenants"]);
    let lower = ["--lower", "--svg", "lower.svg"];
    let ran = run(&[&["key:tenant", "--against", "tight.toml"], &lower[..]].concat());
    assert_harmless(ran.assert(
        1,
        &["tight.toml", "sliding_window 2/min", "80 %", "a.log:3"],
    ));
    ran.lacks(&["key-4711"]);
    let picture = fs::read_to_string(program.folder().join("lower.svg")).expect("a picture");
    assert!(
        picture.starts_with("<svg") && picture.contains("polyline") && picture.contains(">api<"),
        "{picture}"
    );
    // A rule may be called as one that blocks.
    let tight = rules("header:user-agent", "sliding_window 2/min");
    let blocked = tight.replace("\"api\"", "\"api:blocked\"");
    fs::write(program.folder().join("limits.toml"), blocked).expect("a file");
    run(&["key:tenant"]).assert(1, &["api:blocked"]);
    let only = rules("header:x-api-key", "1/s");
    fs::write(program.folder().join("limits.toml"), only).expect("a file");
    run(&["key:tenant"]).assert(
        2,
        &[
            "no rule can be tried",
            "no line has what it counts by, header:x-api-key",
        ],
    );
    run(&["key:tenant", "--format", "nonsense"]).assert(2, &["or a log_format of nginx"]);
    run(&["key:tenant", "--format", "json"]).assert(3, &["it is no JSON"]);
}

#[test]
fn entries_of_lists_end_by_the_times_of_the_log() {
    let rules = r#"
version = 1
lists.abusive = { file = "abusive.txt" }
rules = [{ name = "abusive", limit = "none", by = "client_ip", when = { in_list = "abusive", by = "client_ip" } }]
"#;
    let line = |second| line("192.0.2.7", second, "GET /", 200).replace("2026", "2020");
    let program = Program::new()
        .file("limits.toml", rules)
        .file("abusive.txt", "192.0.2.7 until 2020-11-27T00:00:05Z\n")
        .file("a.log", &[0, 4, 5, 9].map(line).concat());
    let (_, json) = program.json(&words("replay a.log --rules limits.toml"));
    assert_eq!(rule(&json, "abusive")["denied"], 2, "{json}");
}

#[test]
fn rules_that_end_within_a_log_keep_their_denials_and_slow_answers_take_no_time() {
    let rules = r#"
version = 1
rules = [
  { name = "a", limit = "2/min burst 1", by = "client_ip", slow_denials = { by = "2s", at_most = 500 } },
  { name = "b", limit = "1/d", by = "path" },
]
overrides = [{ rule = "a", key = "192.0.2.7", limit = "none" }]
switches = [
  { rules = "*", limit = "shadow", until = 2026-11-27T00:00:05Z },
  { rules = "b", limit = "off", until = 2026-11-27T00:00:05Z },
]
"#;
    let log = [
        ("192.0.2.7", 0),
        ("192.0.2.8", 9),
        ("192.0.2.8", 10),
        ("192.0.2.9", 11),
    ];
    let log = log.map(|(client, second)| line(client, second, "GET /", 200));
    let program = Program::new()
        .file("limits.toml", rules)
        .file("a.log", &log.concat());
    let (_, json) = program.json(&words("replay a.log --rules limits.toml"));
    let denied = |name: &str| rule(&json, name)["denied"].as_u64();
    let of_rules = ["a", "a:blocked", "b"].map(denied);
    assert_eq!(of_rules, [Some(1), Some(1), Some(2)], "{json}");
    for client in json["clients"].as_array().expect("clients") {
        let name = client["rule"].as_str().expect("a name");
        assert!(rule(&json, name)["denied"].as_u64() > Some(0), "{json}");
    }
}
