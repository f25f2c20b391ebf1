//! Groups, switches and overrides.

use http::Method;
use tollgate_core::{Key, Limiter, MemoryStore, Pending, journal::Base};
use tollgate_redis::Secret;
use tollgate_rules::{
    Format, RuleDocument, RuleText,
    operators::{Explained, Explanation},
};

use crate::{START, bindings, client, get, one, passing, request, toml};

#[tokio::test]
async fn of_a_group_only_the_most_specific_rule_counts() {
    let text = r#"
        version = 1
        rules = [
            { name = "everything", limit = "fixed_window 1/min", by = "constant" },
            { name = "reads", limit = "fixed_window 3/min", by = "constant", when = { path = "/api/{*rest}" } },
            { name = "writes", limit = "fixed_window 2/min", by = "constant", when = { path = "/api/{*rest}", methods = ["POST"] } },
            { name = "export", limit = "fixed_window 5/min", by = "constant", when = { path = "/api/export" } },
        ]
        groups = [{ name = "api", rules = ["everything", "writes", "export", "reads"] }]
    "#;
    let document = toml(text).unwrap_or_else(|error| panic!("{error}"));
    for (method, path, limit) in [
        (Method::GET, "/", 1),
        (Method::GET, "/api/x", 3),
        (Method::POST, "/api/x", 2),
        (Method::GET, "/api/export", 5),
        (Method::POST, "/api/export", 5),
    ] {
        let request = || request(method.clone(), path);
        assert_eq!(
            passing(document.rules(), request).await,
            limit,
            "{method} {path}"
        );
    }
    // A rule that is off is not there.
    let off = text.replace(
        "by = \"constant\", when = { path = \"/api/export\" }",
        "by = \"constant\", mode = \"off\", when = { path = \"/api/export\" }",
    );
    let document = toml(&off).expect("valid");
    assert_eq!(passing(document.rules(), || get("/api/export")).await, 3);
}

#[tokio::test]
async fn switches_take_precedence_until_they_expire() {
    let with = |switch: &str| {
        let text = one("\"constant\"", "").replace("2/min", "5/min");
        let text = format!(
            "{text}\n[[overrides]]\nrule = \"rule\"\nkey = \"x\"\nlimit = \"9/min\"\n[[switches]]\n{switch}\n"
        );
        toml(&text.replace("by = \"constant\"", "by = \"header:x-api-key\""))
    };
    let passing = async |switch: &str, name: &str| {
        let document = with(switch).unwrap_or_else(|error| panic!("{error}"));
        passing(document.rules_at(START), || client("/", name)).await
    };
    // Rounded up: 2.5 is 3, 4.5 is 5.
    assert_eq!(passing("rules = \"*\"\nlimit = \"50%\"", "ann").await, 3);
    assert_eq!(passing("rules = \"*\"\nlimit = \"50%\"", "x").await, 5);
    assert_eq!(
        passing("rules = \"rule\"\nlimit = \"0.1%\"", "ann").await,
        1
    );
    assert_eq!(
        passing("rules = [\"rule\"]\nlimit = \"off\"", "ann").await,
        10
    );
    assert_eq!(
        passing("rules = [\"rule\"]\nlimit = \"shadow\"", "ann").await,
        10
    );
    let expired = "rules = \"*\"\nlimit = \"off\"\nuntil = 2001-01-01T00:00:00Z";
    assert_eq!(passing(expired, "ann").await, 5);
}

#[test]
fn an_override_is_a_part_of_the_limit_rounded_up() {
    for (own, part, said) in [
        ("gcra 1/s", "50%", "gcra 1/s"),
        ("concurrent 1", "50%", "concurrent 1"),
        ("sliding_log 3/min", "50%", "sliding_log 2/min"),
        (
            "sliding_log 600/min",
            "200%",
            "so much of sliding_log 600/min cannot be counted",
        ),
        ("gcra 1/s", "0%", "to block, write \"none\""),
        ("unlimited", "50%", "so much of unlimited cannot be counted"),
        (
            "gcra 8589934592/s",
            "90%",
            "so much of gcra 8589934592/s cannot be counted",
        ),
    ] {
        let text = one("\"header:x-api-key\"", "").replace("fixed_window 2/min", own);
        let own =
            format!("{text}\n[[overrides]]\nrule = \"rule\"\nkey = \"x\"\nlimit = \"{part}\"\n");
        let quota = toml(&own).map(|it| it.explain_key("rule", &["x"]).expect("a key").quota);
        let (Ok(quota) | Err(quota)) = quota.map(|it| it.to_string()).map_err(|it| it.to_string());
        assert!(quota.contains(said), "{own}: {quota}");
    }
}

#[tokio::test]
async fn a_switch_for_all_rules_leaves_whom_they_block_blocked() {
    let text = |switch: &str| {
        format!(
            r#"
            version = 1
            rules = [
                {{ name = "closed", limit = "none", by = "constant", when = {{ path = "/closed" }} }},
                {{ name = "api", limit = "2/min", by = "header:x-api-key", when = {{ path = "/" }}, idempotent = {{ header = "idempotency-key", for = "10min" }} }},
                {{ name = "own", limit = "2/min", by = "header:x-api-key", when = {{ path = "/own" }}, quota_by = "token", missing = 401 }},
            ]
            [[overrides]]
            rule = "api"
            key = "mallory"
            limit = "0/min"
            until = 2999-01-01T00:00:00Z
            [[switches]]
            {switch}
            "#
        )
    };
    // How many of ten pass: at the closed door, of the blocked client, and of another.
    for (switch, passed) in [
        ("rules = [\"*\"]\nlimit = \"50%\"", [0, 0, 1]),
        ("rules = [\"*\"]\nlimit = \"shadow\"", [0, 0, 10]),
        ("rules = [\"*\"]\nlimit = \"off\"", [0, 0, 10]),
        ("rules = [\"api\"]\nlimit = \"shadow\"", [0, 10, 10]),
        ("rules = [\"*\", \"closed\"]\nlimit = \"off\"", [10, 0, 10]),
    ] {
        let document = toml(&text(switch)).unwrap_or_else(|error| panic!("{error}"));
        let rules = || document.rules_at(START);
        let all = [
            passing(rules(), || get("/closed")).await,
            passing(rules(), || client("/", "mallory")).await,
            passing(rules(), || client("/", "ann")).await,
        ];
        assert_eq!(all, passed, "{switch}");
        // It is explained so, by the key and of a request.
        let is_blocked = |it: &Explanation| it.outcome == Explained::Enforces && it.quota.is_none();
        let by_key = document.explain_key("api", &["mallory"]).expect("a key");
        let (head, _) = client("/", "mallory").into_parts();
        for explained in [&by_key, &document.explain(&head)[1]] {
            let said = (is_blocked(explained), explained.key.is_some());
            assert_eq!(said, (passed[1] == 0, true), "{switch}: {explained:?}");
        }
        // So it is where code says whom it blocks.
        let computed = |mut request: http::Request<String>, limit| {
            let limit = http::HeaderValue::from_static(limit);
            request.headers_mut().insert("x-limit", limit);
            request
        };
        for (request, limit) in [
            (client("/own", "ann"), "none"),
            (client("/own", "ann"), "0"),
            (get("/own"), "none"),
        ] {
            let (head, _) = computed(request.clone(), limit).into_parts();
            let explained = &document.explain(&head)[2];
            let is_rejected = matches!(explained.outcome, Explained::Rejects(_));
            assert!(
                is_blocked(explained) || is_rejected,
                "{switch}: {explained:?}"
            );
            assert_eq!(
                passing(rules(), || computed(request.clone(), limit)).await,
                0
            );
        }
    }
}

#[test]
fn what_is_off_stays_off() {
    let text = one("\"constant\"", "mode = \"off\"");
    let text = format!("{text}\n[[switches]]\nrules = \"*\"\nlimit = \"shadow\"\n");
    let document = toml(&text).expect("valid");
    let [rule] = &document.limiter_rules()[..] else {
        panic!("one rule");
    };
    assert_eq!(*rule.mode(), tollgate_core::Mode::Off);
}

#[tokio::test]
async fn a_client_has_its_own_limit_where_the_rule_has_none() {
    let own = "[[overrides]]\nrule = \"rule\"\nkey = \"a2\"\nlimit = \"sliding_log 2/h\"";
    let text = one("\"header:x-api-key\"", own).replace("fixed_window 2/min", "unlimited");
    let document = toml(&text).expect("valid");
    for (name, passed) in [("a1", 10), ("a2", 2)] {
        let request = || client("/", name);
        assert_eq!(passing(document.rules(), request).await, passed, "{name}");
        let explained = document.explain_key("rule", &[name]).expect("a key");
        assert_eq!(explained.quota.is_unlimited(), passed == 10);
    }
}

#[tokio::test]
async fn of_several_overrides_of_a_client_the_last_counts_whatever_names_it() {
    let secret = bindings().secret(&Secret::from_bytes([7; 32]).expect("32 bytes"));
    let document = |overrides: &str| {
        let text = one("\"header:x-api-key\"", overrides);
        RuleDocument::parse(&text, Format::Toml, &secret).expect("valid")
    };
    let known = document("").explain_key("rule", &["acme"]).expect("a key");
    let hash = format!(
        "{{ hash = \"{:032x}\" }}",
        known.key_hash.expect("a secret")
    );
    for (keys, passed) in [
        (["\"acme\"", &hash], 4),
        ([&hash, "\"acme\""], 4),
        (["\"acme\"", "\"acme\""], 4),
        (["\"acme\"", "\"other\""], 3),
    ] {
        let entry = |(key, limit)| {
            format!("[[overrides]]\nrule = \"rule\"\nkey = {key}\nlimit = \"{limit}/min\"\n")
        };
        let document = document(&keys.into_iter().zip([3, 4]).map(entry).collect::<String>());
        let explained = document.explain_key("rule", &["acme"]).expect("a key");
        let request = || client("/", "acme");
        let seen = u64::from(passing(document.rules(), request).await);
        assert_eq!(
            (seen, explained.quota.limit()),
            (passed, passed),
            "{keys:?}"
        );
    }
}

#[test]
fn an_override_of_sub_buckets_has_as_many_as_the_rule() {
    let text = "\
version = 1
rules = [{ name = \"rule\", limit = \"sliding_buckets 6/d buckets 24\", by = \"header:x-api-key\" }]
overrides = [{ rule = \"rule\", key = \"acme\", limit = \"sliding_buckets 9/d\" }]
";
    let document = toml(text).expect("valid");
    let quota = |key| document.explain_key("rule", &[key]).expect("a key").quota;
    assert_eq!(
        (quota("acme").limit(), quota("acme").bucket_count()),
        (9, 24)
    );
    assert_eq!(
        (quota("other").limit(), quota("other").bucket_count()),
        (6, 24)
    );
    let wrong = toml(&text.replace("9/d", "9/d buckets 12")).expect_err("another number");
    let message = &wrong.mistakes()[0].message;
    assert!(
        message.contains("in 12 sub-buckets, and the rule in 24"),
        "{message}"
    );
}

#[test]
fn what_changes_is_said_of_groups_and_of_the_rule_that_is_switched() {
    let rules = |limit: &str| {
        let rule = |n: usize| {
            format!(
                "{{ name = \"r{n}\", limit = \"{limit}\", by = \"constant\", when = {{ path = \"/{n}\" }} }},\n"
            )
        };
        let rules: String = (0..60).map(rule).collect();
        format!("version = 1\nrules = [{rules}]\n")
    };
    let group = |rules: &str| format!("groups = [{{ name = \"all\", rules = [{rules}] }}]\n");
    let text = |text: String| RuleText::new(text, Format::Toml);
    let before = text(rules("1/s") + &group("\"r1\", \"r2\""));
    let changes = |after: String| {
        let changes = text(after).changes_from(&before, &bindings());
        changes.expect("right documents")
    };
    assert_eq!(
        changes(rules("1/s") + &group("\"r1\", \"r3\"")),
        [r#"group all: ["r1", "r2"] → ["r1", "r3"]"#]
    );
    assert_eq!(
        changes(rules("1/s")),
        [r#"group all: ["r1", "r2"] → (none)"#]
    );
    let same = || rules("1/s") + &group("\"r1\", \"r2\"");
    assert!(changes(same()).is_empty());
    let switch = "switches = [{ rules = [\"r7\"], limit = \"50%\" }]\n";
    let lines = changes(same() + switch);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("r7: "), "{lines:?}");
}

#[test]
fn a_limit_beside_one_of_a_calendar_has_what_it_does_not_say_of_that_one() {
    let own = r#"
version = 1
[[rules]]
name = "budget"
limit = "100/month Europe/Zurich from 15"
by = "tenant"
plan = "plan"
plans = { gold = "500/month", utc = "500/month UTC", tokyo = "7/month Asia/Tokyo from 3" }
[[overrides]]
rule = "budget"
key = "acme"
limit = "9/month Asia/Kathmandu"
"#;
    let document = toml(own).expect("valid");
    let rule = &document.limiter_rules()[0];
    let quotas = (1..rule.quotas()).map(|plan| rule.quota_of(plan).to_string());
    let quotas: Vec<String> = quotas.collect();
    for quota in [
        "calendar 500/month Europe/Zurich from 15",
        "calendar 500/month",
        "calendar 7/month Asia/Tokyo from 3",
    ] {
        assert!(quotas.iter().any(|it| it == quota), "{quotas:?}");
    }
}

#[tokio::test]
async fn deny_unwritten_denies_what_a_full_ledger_would_lose() {
    for (more, passes) in [("", true), ("deny_unwritten = true", false)] {
        let text = format!(
            "version = 1\n[[rules]]\nname = 'units'\nlimit = 'fixed_window 5/d'\nby = 'header:x-api-key'\ndurable = 'key'\n{more}\n"
        );
        let rules = toml(&text).expect("valid").limiter_rules();
        let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
        let has_none = |_| Pending::new(async { Some(Base::default()) });
        assert!(limiter.journal().attach(1, has_none));
        // Its account takes the only place.
        let check = limiter.check("units", &Key::of("acme")).expect("the rule");
        assert_eq!(limiter.acquire(&[check]).await.is_allowed(), passes);
    }
}

#[tokio::test]
async fn an_override_takes_precedence_over_a_computed_limit_and_a_switch_halves_it() {
    let request = || {
        let mut request = client("/", "acme");
        let limit = http::HeaderValue::from_static("fixed_window 6/min");
        request.headers_mut().insert("x-limit", limit);
        request
    };
    let other = "[[overrides]]\nrule = \"rule\"\nkey = \"acme\"\nlimit = \"4/min\"\n";
    let half = "[[switches]]\nrules = \"*\"\nlimit = \"50%\"\n";
    for (more, passed) in [(other, 4), (half, 3)] {
        let more = format!("quota_by = \"token\"\n{more}");
        let document = toml(&one("\"header:x-api-key\"", &more)).expect("valid");
        assert_eq!(passing(document.rules(), request).await, passed);
    }
}
