//! `tollgate key`.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use serde_json::json;
use tollgate::{RateLimitLayer, key::PeerAddr};
use tollgate_redis::{Keys, Partition, RedisStore, Secret};
use tollgate_rules::{Bindings, Format, RuleDocument};
use tollgate_tests::events::Events;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tracing::Level;

use crate::support::{Program, RedisCluster, RedisServer, SECRET, words};

const RULES: &str = "\
version = 1

[[rules]]
name = \"search-per-key\"
limit = \"sliding_log 3/d\"
by = \"header:x-api-key\"
when = { path = \"/search\" }

[[rules]]
name = \"per-address\"
limit = \"gcra 10/d\"
by = \"client_ip\"

[[overrides]]
rule = \"search-per-key\"
key = \"globex-key-9\"
limit = \"sliding_log 5/d\"
reason = \"contract\"
";

/// A reason, and no question.
const BECAUSE: &[&str] = &["--because", "ticket 4711", "--yes"];

const SEARCH: &[&str] = &[
    "--path",
    "/search",
    "-H",
    "x-api-key: acme-key-1",
    "--client-ip",
    "192.0.2.7",
];

#[test]
fn a_check_takes_units_until_it_denies_and_names_the_rule() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    let check = [&["key", "check"], SEARCH].concat();
    for left in ["2", "1", "0"] {
        let (code, json) = program.json(&check);
        assert_eq!((code, &json["allowed"]), (0, &json!(true)), "{json}");
        assert_eq!(json["rules"][0]["remaining"].to_string(), left);
        assert_eq!(json["rules"][0]["allowed"], json!(true));
    }
    program
        .run(&check)
        .assert(1, &["denied by search-per-key, retry after "])
        .lacks(&["acme-key-1", "192.0.2.7"]);
    let (code, json) = program.json(&check);
    assert_eq!((code, &json["reason"]), (1, &json!("quota")));
    assert_eq!(json["rules"][0]["allowed"], json!(false), "{json}");
    for wait in ["retry_after_seconds", "reset_after_seconds"] {
        let seconds = json["rules"][0][wait].as_f64().expect("a wait");
        assert!((1.0..=86_400.0).contains(&seconds), "{json}");
    }

    // The denial has taken nothing of the other rule; the client's own limit is another's.
    let (_, json) = program.json(&["key", "status", "192.0.2.7", "--rule", "per-address"]);
    assert_eq!(json["rules"][0]["remaining"], json!(7), "{json}");
    let args = ["key", "check", "globex-key-9", "--rule", "search-per-key"];
    let (_, json) = program.json(&args);
    assert_eq!(json["rules"][0]["remaining"], json!(4), "{json}");
    assert_eq!(
        json["rules"][0]["limit_from"],
        json!("an override (contract)")
    );
}

#[test]
fn a_status_says_since_when_a_growing_block_is_in_force() {
    let server = RedisServer::start(&[]);
    let block = "by = \"header:x-api-key\"\nblock = { after = 1, within = \"10min\", for = [\"1h\", \"2h\"] }";
    let rules = RULES.replacen("by = \"header:x-api-key\"", block, 1);
    let program = Program::on(&server, &rules);
    let check = [&["key", "check"], SEARCH].concat();
    for code in [0, 0, 0, 1] {
        program.run(&check).assert(code, &[]);
    }
    let status = ["key", "status", "acme-key-1"];
    let said = ["blocked for ", "Z, level 1 since "];
    program.run(&status).assert(1, &said);
    let (_, json) = program.json(&status);
    let rule = &json["rules"][0];
    assert_eq!(
        (&rule["blocked"], &rule["block_level"]),
        (&json!(true), &json!(1))
    );
    assert!(rule["blocked_since"].is_string(), "{json}");
}

#[test]
fn by_its_key_alone_a_client_is_blocked_only_where_the_key_says_it() {
    let server = RedisServer::start(&[]);
    let lists = "version = 1
lists.revoked = { file = \"revoked.txt\" }
[[rules]]
name = \"revoked\"
limit = \"none\"
by = \"header:x-api-key\"
when = { any = [{ in_list = \"revoked\", by = \"header:X-Api-Key\" }] }
[[rules]]
name = \"abusive\"
limit = \"none\"
by = \"client_ip\"
when = { in_list = \"revoked\", by = \"client_ip\" }
[[rules]]
name = \"export\"
limit = \"none\"
by = \"header:x-api-key\"
when = { path = \"/export\" }
unless = { in_list = \"revoked\", by = \"client_ip\" }
[[rules]]
name = \"per-method\"
limit = \"9/d\"
by = [\"header:x-api-key\", \"method\"]
";
    let rules = RULES.replace("version = 1\n", lists);
    let listed = "\u{feff}# leaked\n k-listed until 2999-01-01T00:00Z  # ticket 7\n2001:db8:7::7\n";
    let program = Program::on(&server, &rules).file("revoked.txt", listed);
    // The same list in hashes.
    let made = "tollgate key hash revoked < revoked.txt > hashed.txt; cat hashed.txt";
    program.shell(made).assert(0, &[]).lacks(&["k-listed", "#"]);
    // An argument is a key, whatever it is as a line.
    for key in ["#admin", "k-listed #2"] {
        let ran = program.run(&["key", "hash", "revoked", key]);
        ran.assert(0, &[]);
        assert!(ran.out.trim().len() == 32, "{}", ran.out);
    }
    for key in ["", "k-listed until 2999-01-01", "10.0.0.7", "2001:db8::/32"] {
        let ran = program.run(&["key", "hash", "revoked", key]);
        ran.assert(2, &["a line of a list"]);
    }
    let of_hashes = rules.replace("\"revoked.txt\"", "\"hashed.txt\", hashed = true");
    let program = program.file("hashed.toml", &of_hashes);
    let depends = "export: depends on the request: give its head with -H";
    for (command, file) in [
        ("status", "limits.toml"),
        ("check", "limits.toml"),
        ("check", "hashed.toml"),
    ] {
        let run = |key: &str| program.run(&["key", command, key, "--rules", file]);
        run("k-listed").assert(1, &["denied by revoked", depends]);
        run("k-123").assert(0, &[depends]).lacks(&["revoked"]);
        run("2001:db8:7::7").assert(1, &["denied by abusive"]);
        run("2001:db8:7::8").assert(0, &[]).lacks(&["abusive"]);
        run("k-123\tGET").assert(0, &["per-method"]);
    }
    program
        .run(&["key", "status", "k-123", "--rule", "export"])
        .assert(2, &["no rule counts this", depends]);
    let export = ["--path", "/export", "-H", "x-api-key: k-123"];
    program
        .run(&[&["key", "status"], &export[..]].concat())
        .assert(1, &["denied by export"]);
}

#[test]
fn a_client_that_no_rule_counts_passes() {
    let server = RedisServer::start(&[]);
    let rules = "\
version = 1
rules = [
  { name = \"api\", limit = \"5/d\", by = \"header:x-api-key\" },
  { name = \"retired\", limit = \"5/d\", by = \"header:x-api-key\", mode = \"off\" },
]
overrides = [
  { rule = \"api\", key = \"acme\", limit = \"unlimited\" },
  { rule = \"retired\", key = \"mallory\", limit = \"none\" },
]
";
    let program = Program::on(&server, rules);
    for command in ["status", "check"] {
        for (args, said) in [
            (&["acme"][..], "api: unlimited"),
            (&["mallory", "--rule", "retired"], "retired: off"),
            (&["--path", "/", "-H", "x-api-key: acme"], "retired: off"),
        ] {
            let args = [&["key", command], args].concat();
            program.run(&args).assert(0, &["no rule counts this", said]);
        }
        let (code, json) = program.json(&["key", command, "acme"]);
        assert_eq!((code, json["rules"].as_array().map(Vec::len)), (0, Some(2)));
    }
    let reset = [&["key", "reset", "acme"], BECAUSE].concat();
    program.run(&reset).assert(2, &["no rule counts this"]);
    // A handler may deny what its rule limits.
    let rules = "version = 1\nrules = [{ name = \"jobs\", limit = \"5/d\", by = \"handler\" }]\n";
    Program::on(&server, rules)
        .run(&["key", "check", "--path", "/"])
        .assert(2, &["no rule counts this"]);
    // So may a rule on the other side.
    let rules = "version = 1\nrules = [{ name = \"jobs\", limit = \"none\", by = \"client_ip\", at = \"edge\" }]\n";
    Program::on(&server, rules)
        .run(&["key", "check", "--client-ip", "192.0.2.7"])
        .assert(2, &["no rule counts this", "--at"]);
}

#[test]
fn a_status_takes_nothing_and_a_reset_says_whether_there_was_a_state() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    let status = ["key", "status", "acme-key-1"];
    program
        .run(&status)
        .assert(0, &["search-per-key", "nothing used", "allowed"])
        .assert(
            0,
            &["there is no state: is this the client's key", "doctor"],
        )
        .lacks(&["acme-key-1"]);
    // Nothing is used by either partition: one line says so.
    let (_, json) = program.json(&status);
    assert_eq!(json["rules"].as_array().map(Vec::len), Some(1), "{json}");
    let reset = ["key", "reset", "acme-key-1", "--rule", "search-per-key"];
    let reset = [&reset[..], &BECAUSE[..2]].concat();
    program
        .run(&reset)
        .assert(2, &["under search-per-key", "go on? [y/N]"]);
    let reset = [&reset[..], &BECAUSE[2..]].concat();
    program.run(&reset).assert(1, &["there was no state"]);
    for _ in 0..3 {
        program
            .run(&[&["key", "check"], SEARCH].concat())
            .assert(0, &["allowed"]);
    }
    for _ in 0..2 {
        program
            .run(&status)
            .assert(1, &["denied by search-per-key", "denied, retry after "])
            .lacks(&["there is no state"]);
    }
    let (_, json) = program.json(&status);
    assert_eq!(
        (&json["denied"], &json["rules"][0]["remaining"]),
        (&json!(true), &json!(0))
    );
    program
        .run(&reset)
        .assert(0, &["forgotten", "the client starts anew"]);
    program.run(&reset).assert(1, &["there was no state"]);
    // Also while nothing can be taken.
    for (name, value) in [("min-replicas-to-write", "1"), ("maxmemory", "1")] {
        let _: String = server.ask(&["CONFIG", "SET", name, value]);
        program.run(&status).assert(0, &["nothing used"]);
        let _: String = server.ask(&["CONFIG", "SET", name, "0"]);
    }
    let (_, json) = program.json(&["rules", "history"]);
    let history = json["history"].as_array().expect("a list");
    assert_eq!(history.len(), 1, "{json}");
    assert_eq!(
        (&history[0]["kind"], &history[0]["reason"]),
        (&json!("reset"), &json!("ticket 4711"))
    );
}

/// Requests of one client to a service that has its states there, by a partition.
fn requests(server: &RedisServer, partition: Partition, number: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let keys = Keys::hashed(Secret::from_text(SECRET).expect("a secret"));
        let store = RedisStore::builder(&*server.url(), "shop", keys);
        let store = store.partition(partition).deadline(Duration::from_secs(10));
        let store = store.connect().expect("a valid address");
        store.connected().await;
        let document = RuleDocument::parse(RULES, Format::Toml, &Bindings::new());
        let rules = document.expect("right rules").rules();
        let layer = RateLimitLayer::new(store, rules).expect("right rules");
        for _ in 0..number {
            let service = layer.layer(service_fn(|_: Request<String>| async {
                Ok::<_, Infallible>(Response::new(String::new()))
            }));
            let request = Request::get("/search").header("x-api-key", "acme-key-1");
            let request = request.extension(PeerAddr(([192, 0, 2, 7], 4711).into()));
            let request = request.body(String::new()).expect("a request");
            let Ok(_) = service.oneshot(request).await;
        }
    });
}

#[test]
fn the_client_of_a_service_is_found_by_each_partition() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    for partition in [Partition::One, Partition::Key] {
        requests(&server, partition, 2);
        let (_, json) = program.json(&["key", "status", "acme-key-1"]);
        let mut rules = json["rules"].as_array().expect("a list").iter();
        assert!(rules.all(|rule| rule["remaining"] == json!(1)), "{json}");
    }
    program
        .run(&["key", "status", "acme-key-1"])
        .assert(0, &["states by the partitions one and key"]);
    let reset = ["key", "reset", "acme-key-1", "--rule", "search-per-key"];
    let (code, json) = program.json(&[&reset[..], BECAUSE].concat());
    let states = json["states"].as_array().expect("a list").iter();
    let had: Vec<_> = states.map(|state| &state["had_state"]).collect();
    assert_eq!((code, had), (0, vec![&json!(true), &json!(true)]));
}

#[test]
fn the_letters_of_a_client_are_those_in_the_log_of_the_service() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    let events = Events::listen();
    requests(&server, Partition::One, 4);
    let logged = events.at(Level::DEBUG);
    let denied = logged
        .iter()
        .find_map(|fields| Some(fields.split_once("key=")?.1));
    let key = denied
        .and_then(|rest| rest.split(' ').next())
        .expect("a denial");
    assert_eq!(key.len(), 8, "{logged:?}");
    for command in ["status", "check"] {
        let of_client = ["key", command, "acme-key-1", "--rule", "search-per-key"];
        program.run(&of_client).assert(1, &[key]);
        let (_, json) = program.json(&of_client);
        assert_eq!(json["rules"][0]["key"], json!(key));
        let of_other = ["key", command, "acme-key-2", "--rule", "search-per-key"];
        program.run(&of_other).assert(0, &[]).lacks(&[key]);
    }
}

#[test]
fn a_state_that_lies_with_a_tenant_is_found_with_the_tenant() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    let by_rule = ["--partition", "by-rule:per-address"];
    program
        .run(&[&["key", "check"], SEARCH, &by_rule].concat())
        .assert(0, &["allowed"]);
    let only = ["--rule", "search-per-key"];
    let reset = [&["key", "reset"], SEARCH, &by_rule, &only, BECAUSE].concat();
    program
        .run(&reset)
        .assert(0, &["by-rule:per-address", "forgotten"]);
    // The tenant's own state was not touched.
    let (_, json) = program.json(&[&["key", "status"], SEARCH, &by_rule].concat());
    let rules = json["rules"].as_array().expect("a list").iter();
    let left: Vec<_> = rules.map(|rule| &rule["remaining"]).collect();
    assert_eq!(left, [&json!(3), &json!(9)]);
    program.run(&reset).assert(1, &["there was no state"]);
}

#[test]
fn a_cluster_has_its_states_on_all_shards() {
    let cluster = RedisCluster::start();
    let program = Program::on(cluster.server(0), RULES).set("REDIS_URL", &cluster.url());
    program
        .run(&[&["key", "check"], SEARCH].concat())
        .assert(2, &["--partition"]);
    program
        .run(&[&["key", "check"], SEARCH, &["--partition", "key"]].concat())
        .assert(0, &["allowed"]);
    let (_, json) = program.json(&[&["key", "status"], SEARCH].concat());
    assert_eq!(json["rules"][0]["remaining"], json!(2), "{json}");
    program
        .run(&[&["key", "reset"], SEARCH, BECAUSE].concat())
        .assert(0, &["forgotten"]);
}

#[test]
fn what_cannot_be_done_says_what_would_help() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    for (args, words) in [
        (&[][..], "which client?"),
        (&["a", "--path", "/"], "leave out one"),
        (
            &["a", "--rule", "serch-per-key"],
            "did you mean \"search-per-key\"",
        ),
        (&["a", "--rule", "per-address"], "write an address"),
        (&["a", "b"], "not a key of any rule"),
    ] {
        let ran = program.run(&[&["key", "status"], args].concat());
        ran.assert(2, &[words]);
    }
    for (line, right) in [
        (
            "ledger adjust a b 1 --id i --because c --at yesterday",
            "with its zone",
        ),
        ("ledger adjust a b abc --id i --because c", "a whole number"),
        ("rules end x --because c", "a whole number"),
        (
            "rules override two acme GET 9/h --because c",
            "with tabs between",
        ),
        ("key hash '' a", "a value is required"),
    ] {
        program.run(&words(line)).assert(2, &[right]);
    }
    // A mistake that the grammar finds is JSON too.
    let (code, json) = program.json(&["key", "status", "--rule"]);
    assert!(code == 2 && json["error"].is_string(), "{json}");
    for command in [&["key", "status", "a"][..], &["doctor"]] {
        let ran = program.run(&[command, &["--namespace", "a b"]].concat());
        ran.assert(2, &["\"a b\" is no namespace"]);
    }
    let program = program.set("TOLLGATE_SECRET", "hunter2");
    program
        .run(&["key", "status", "a"])
        .assert(2, &["openssl rand -hex 32"])
        .lacks(&["hunter2"]);
    let program = program
        .set("TOLLGATE_SECRET", SECRET)
        .set("REDIS_URL", "redis://ada:sesame@127.0.0.1:1");
    program
        .run(&["key", "status", "a"])
        .assert(3, &["127.0.0.1:1", "tollgate doctor"])
        .lacks(&["sesame"]);
}

#[test]
fn a_request_without_a_key_is_rejected_or_shares_a_bucket_and_both_are_said() {
    let server = RedisServer::start(&[]);
    let rules = "\
version = 1
rules = [
  { name = \"rejecting\", limit = \"5/d\", by = \"header:x-api-key\", missing = 401 },
  { name = \"sharing\", limit = \"5/d\", by = \"header:x-tenant\", mode = \"shadow\" },
]
";
    let program = Program::on(&server, rules);
    let request = ["--path", "/"];
    let status = [&["key", "status"], &request[..]].concat();
    program.run(&status).assert(
        1,
        &[
            "rejecting: no key, so it rejects with 401",
            "sharing: the request has no key; this is the bucket that all such requests share",
            "sharing: a shadow, which denies nothing",
        ],
    );
    let (_, json) = program.json(&status);
    assert_eq!(json["denied"], json!(true));
    let rules: Vec<_> = json["rules"].as_array().expect("a list").iter().collect();
    assert_eq!(
        (rules.len(), &rules[1]["rule"]),
        (2, &json!("rejecting")),
        "{json}"
    );
    // It rejects without counting: there is nothing else to say of it.
    let only = [&status[..], &["--rule", "rejecting"]].concat();
    program
        .run(&only)
        .assert(1, &["rejecting: no key, so it rejects with 401"]);
}

#[test]
fn a_check_waits_gives_its_slots_back_and_says_what_never_fits() {
    let server = RedisServer::start(&[]);
    let rules = "\
version = 1
rules = [
  { name = \"imports\", limit = \"1/s burst 1\", by = \"header:x-api-key\", wait = \"30s\" },
  { name = \"exports\", limit = \"concurrent 1\", by = \"header:x-api-key\" },
  { name = \"rows\", limit = \"fixed_window 3/d\", by = \"header:x-tenant\", cost = \"rows\" },
]
";
    let program = Program::on(&server, rules);
    let check =
        |args: &[&str]| program.run(&[&["key", "check", "--bind", "cost:rows=4"], args].concat());
    for _ in 0..3 {
        check(&["acme", "--rule", "imports"]).assert(0, &["allowed"]);
        check(&["acme", "--rule", "exports"]).assert(0, &["allowed"]);
    }
    let ran = check(&["--path", "/", "-H", "x-tenant: b", "--rule", "rows"]);
    ran.assert(
        1,
        &["denied: it costs more than ever fits", "denied by rows"],
    );
}

#[test]
fn a_grant_counts_once_is_shown_and_is_taken_back() {
    let server = RedisServer::start(&[]);
    let rule = |name: &str, more: &str| {
        format!(
            "[[rules]]\nname = {name:?}\nlimit = \"fixed_window 2/d\"\nby = \"header:x-api-key\"\n{more}\n"
        )
    };
    let rules = rule("pages", "credits = true") + &rule("other", "");
    let program = Program::on(&server, &format!("version = 1\n{rules}"));
    let grant = words("key grant pages acme --id invoice-1 --units 10 --until 2d");
    let grant = [&grant[..], BECAUSE].concat();
    for (changed, said) in [(10, 0), (0, 1)] {
        let (code, json) = program.json(&grant);
        assert_eq!(
            (code, &json["changed"], &json["units"]),
            (said, &json!(changed), &json!(10))
        );
    }
    let over = words("key grant pages acme --id x --units 10 --until 2020-01-01T00:00:00Z");
    let over = program.run(&[&over[..], BECAUSE].concat());
    over.assert(2, &["is to come"]);
    for _ in 0..3 {
        let (code, json) = program.json(&["key", "check", "acme", "--rule", "pages"]);
        assert_eq!(code, 0, "two of the limit, and one of the balance: {json}");
    }
    let (code, json) = program.json(&["key", "status", "acme", "--rule", "pages"]);
    let shown = &json["rules"][0];
    assert_eq!(
        (code, &shown["remaining"], &shown["credits"]["units"]),
        (0, &json!(0), &json!(9))
    );
    program
        .run(&["key", "status", "acme", "--rule", "pages"])
        .assert(0, &["0, 9 credits until 20"]);
    let revoke = ["key", "revoke", "pages", "acme", "--id", "invoice-1"];
    let revoke = [&revoke[..], BECAUSE].concat();
    program.run(&revoke).assert(0, &["9 units were taken back"]);
    program
        .run(&revoke)
        .assert(1, &["nothing is left of this grant"]);
    program.run(&["rules", "history"]).assert(
        0,
        &[
            "is granted 10 units until",
            "by the id \"invoice-1\"",
            "ticket 4711",
        ],
    );
    let other = [&["key", "grant", "other"], &grant[3..]].concat();
    program
        .run(&other)
        .assert(2, &["add `credits = true` to the rule"]);
    // What is done is said also where the audit has no place for it.
    let _: String = server.ask(&["SET", "{shop}:rules:audit", "no stream"]);
    let second = words("key grant pages acme --id invoice-2 --units 10 --until 2d");
    let ran = program.run(&[&second[..], BECAUSE].concat());
    ran.assert(
        0,
        &["10 units were granted", "the audit has no record of it"],
    );
    // Once for both rules.
    program.run(&["key", "check", "acme"]).assert(0, &[]);
    let reset = program.run(&[&["key", "reset", "acme"], BECAUSE].concat());
    assert_eq!(reset.err.matches("no record").count(), 1, "{}", reset.err);
}
