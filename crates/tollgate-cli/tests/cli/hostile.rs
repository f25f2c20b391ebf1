//! What clients, files and others on a server may write: it breaks no line, and no terminal obeys it.

use crate::support::{Program, RedisServer, SECRET, assert_harmless};

/// Escape sequences, ends of lines, what is written from right to left, and marks without a width.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\nforged line\u{202e}txet\u{2066}\u{200f} שלום \u{9b}31m\u{7f} e\u{301}\u{301} \" ' \\ `$(id)`";

fn rules(reason: &str) -> String {
    let reason = serde_json::to_string(reason).expect("a text");
    format!(
        "{{ \"version\": 1, \"rules\": [{{ \"name\": \"api\", \"limit\": \"3/d\", \"by\": \"header:x-api-key\", \"description\": {reason} }}],
            \"overrides\": [{{ \"rule\": \"api\", \"key\": \"acme\", \"limit\": \"9/d\", \"reason\": {reason} }}],
            \"switches\": [{{ \"rules\": \"api\", \"limit\": \"50%\", \"reason\": {reason} }}] }}"
    )
}

#[test]
fn texts_of_files_are_shown_and_not_obeyed() {
    let long = HOSTILE.to_owned() + &"x".repeat(65_536);
    let name = serde_json::to_string(&long).expect("a text");
    let program = Program::new()
        .file("right.json", &rules(&long))
        .file("before.json", &rules("calm"))
        .file("wrong.json", &format!("{{ \"version\": 1, \"rules\": [{{ \"name\": {name}, \"limit\": {name}, \"by\": {name} }}] }}"))
        .file("wrong.toml", &format!("version = 1\n# {}\n[[rules]]\nname = 'a'\nlimit = 'x\u{202e}y' # \u{1b}[2J שלום\n", "é".repeat(70_000)));
    for (code, args) in [
        (0, &["rules", "check", "right.json"][..]),
        (1, &["rules", "check", "wrong.json"]),
        (1, &["rules", "check", "wrong.toml"]),
        (1, &["rules", "diff", "before.json", "right.json"]),
        (
            0,
            &[
                "rules",
                "explain",
                "--rules",
                "right.json",
                "-H",
                "x-api-key: acme",
            ],
        ),
    ] {
        for json in [&[][..], &["--json"]] {
            let ran = program.run(&[args, json].concat());
            assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
            if json.is_empty() {
                assert_harmless(&ran);
            } else {
                assert!(
                    ran.out.is_ascii() && !ran.out.contains('\u{1b}'),
                    "{args:?}"
                );
                let read: Result<serde_json::Value, _> = serde_json::from_str(&ran.out);
                assert!(read.is_ok(), "{args:?}: {}", ran.out);
            }
        }
    }
}

#[test]
fn values_of_headers_are_no_part_of_what_is_printed() {
    let server = RedisServer::start(&[]);
    let program = Program::on(
        &server,
        "version = 1\n[[rules]]\nname = 'api'\nlimit = '3/d'\nby = 'header:x-api-key'\n",
    );
    // What a header cannot hold is refused; a long one and other letters are a key as any other.
    for value in ["\u{1b}[2J", "two\nlines"] {
        let ran = program.run(&["key", "status", "-H", &format!("x-api-key: {value}")]);
        assert_harmless(ran.assert(2, &["control characters"]));
    }
    for value in ["x".repeat(65_536), "שלום\u{202e}\" ' \\ `$(id)`".to_owned()] {
        for command in ["check", "status", "reset"] {
            let header = format!("x-api-key: {value}");
            let because = match command {
                "reset" => &["--because", HOSTILE, "--yes"][..],
                _ => &[],
            };
            let ran = program.run(&[&["key", command, "-H", &header], because].concat());
            assert_harmless(ran.assert(0, &["api"]));
            ran.lacks(&[&value]);
        }
        let ran = program.run(&["rules", "explain", "-H", &format!("x-api-key: {value}")]);
        assert_harmless(ran.assert(0, &["api"]));
        ran.lacks(&[&value]);
    }
    for args in [
        &["rules", "explain", "--path", HOSTILE][..],
        &["rules", "explain", "--method", HOSTILE],
        &["rules", "explain", "--client-ip", HOSTILE],
        &["key", "status", "x", "--rule", HOSTILE],
    ] {
        assert_harmless(program.run(args).assert(2, &[]));
    }
}

#[test]
fn what_others_write_to_redis_is_shown_and_not_obeyed() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, &rules(HOSTILE)).file("limits.json", &rules(HOSTILE));
    let program = program.set("TOLLGATE_RULES", "limits.json");
    let long = HOSTILE.to_owned() + &"y".repeat(65_536);
    let push = [
        "rules",
        "push",
        "limits.json",
        "--by",
        HOSTILE,
        "--because",
        &long,
    ];
    assert_harmless(program.run(&push).assert(0, &["revision 1"]));
    for (set, member) in [
        ("{shop}:instances", long.clone()),
        ("{shop}:quotas", format!("api\n{long}")),
        ("{shop}:quotas", format!("api\nother {HOSTILE}")),
        ("{shop}:quotas", format!("\n{HOSTILE} tag")),
        ("{shop}:quotas", format!("\n{HOSTILE}2 gat")),
    ] {
        let _: u64 = server.ask(&["ZADD", set, "1", &member]);
    }
    for args in [
        &["rules", "history"][..],
        &["doctor"],
        &["key", "status", "acme"],
    ] {
        let ran = program.run(args);
        assert_harmless(&ran);
        assert!(ran.code < 2, "{args:?}: {}{}", ran.out, ran.err);
        ran.lacks(&[SECRET]);
        let ran = program.run(&[args, &["--json"]].concat());
        assert!(
            ran.out.is_ascii() && serde_json::from_str::<serde_json::Value>(&ran.out).is_ok(),
            "{args:?}"
        );
    }
}
