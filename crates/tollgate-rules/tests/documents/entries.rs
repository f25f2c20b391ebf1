//! Groups, switches and rollouts.

use http::Method;
use tollgate::{Clock, ManualClock, MemoryStore, RateLimitLayer};

use crate::{START, client, get, one, passing, passing_through, request, toml};

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
async fn a_rollout_counts_a_part_of_the_clients_and_its_shadow_the_others() {
    for (others, rules_of_it) in [("off", 1), ("shadow", 2)] {
        let rollout = format!("rollout = {{ percent = 30, others = \"{others}\" }}");
        let document = toml(&one("\"header:x-api-key\"", &rollout)).expect("valid");
        let store = MemoryStore::builder()
            .clock(Clock::from(ManualClock::new(START)))
            .build();
        let layer = RateLimitLayer::new(store, document.rules()).expect("valid");
        assert_eq!(layer.limiter().rules().given().len(), rules_of_it);
        let mut limited = 0;
        for n in 0..200 {
            let name = format!("customer-{n}");
            match passing_through(&layer, || client("/", &name)).await {
                2 => limited += 1,
                10 => {}
                other => panic!("{other} of ten pass"),
            }
        }
        assert!((40..80).contains(&limited), "{others}: {limited}");
    }
}
