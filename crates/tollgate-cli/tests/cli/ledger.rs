//! `tollgate ledger` on a file of SQLite, and the counters of a Redis.

use tokio::runtime::Handle;
use tollgate_core::{Key, KeyBuf, Limiter, MAX_PERIOD, Quota, Rule};
use tollgate_ledger::Ledger;
use tollgate_redis::{Keys, RedisStore, Secret};

use crate::support::{Program, RedisServer, SECRET};

const RULES: &str = r#"
version = 1
[[rules]]
name = "units"
limit = "fixed_window 1000/3660d"
by = "header:x-api-key"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_is_read_adjusted_and_reconciled() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    let url = format!("sqlite:{}/ledger.db", program.folder().display());
    let ledger = Ledger::open(&url).await.expect("it opens");
    let secret = Secret::from_text(SECRET).expect("a secret");
    let store = RedisStore::builder(server.url(), "shop", Keys::hashed(secret));
    let store = store.connect().expect("valid");
    store.connected().await;
    let account = |_: &KeyBuf| String::from("acme\u{1b}[2J");
    let rule = Rule::new("units", Quota::fixed_window(1_000, MAX_PERIOD));
    let rule = rule.durable(account).daily_usage(account);
    let limiter = Limiter::new(store, [rule]).expect("valid");
    ledger.attach(&limiter).expect("it has none");
    for units in [300, 200] {
        let check = limiter.check("units", &Key::of("key-1")).expect("the rule");
        assert!(
            limiter
                .acquire(&[check.with_cost(units)])
                .await
                .is_allowed()
        );
        ledger.flush().await.expect("it writes");
    }
    let program = program.set("DATABASE_URL", &url);
    tokio::task::spawn_blocking(move || {
        let account = "acme\u{1b}[2J";
        program
            .run(&["ledger", "statement", account])
            .assert(0, &["\"usage\",\"units\"", ",200,500,"]);
        let adjust = [
            "ledger",
            "adjust",
            account,
            "units",
            "-500",
            "--id",
            "ticket-1",
            "--by",
            "ann",
            "--because",
            "the outage",
        ];
        program.run(&adjust).assert(0, &["written"]);
        program.run(&adjust).assert(1, &["before"]);
        let ran = program.run(&["ledger", "statement", account]);
        ran.assert(
            0,
            &[
                "at,kind,rule",
                ",-500,0,,\"ticket-1\",\"ann\",\"the outage\"\r\n",
            ],
        );
        let ran = program.run(&["--json", "ledger", "usage"]);
        ran.assert(0, &[]);
        let json: serde_json::Value = serde_json::from_str(&ran.out).expect("a document");
        assert_eq!(json[0]["units"], 0);
        let ran = program.run(&["ledger", "usage", account, "--daily"]);
        ran.assert(
            0,
            &[
                "day,account,rule,allowed,denied,units\r\n",
                "\"units\",2,0,500\r\n",
            ],
        );
        program
            .run(&["ledger", "usage", "--daily", "--month", "1999"])
            .assert(1, &[]);
        // No window that is open has its middle there.
        program
            .run(&["ledger", "statement", account, "--month", "1999-12"])
            .assert(1, &[]);
        program
            .run(&["ledger", "reconcile"])
            .assert(1, &["500", "1 of 1 counters differ; --repair"]);
        program
            .run(&["ledger", "reconcile", "--repair"])
            .assert(0, &["500"]);
        program
            .run(&["ledger", "reconcile"])
            .assert(0, &["1 counters"]);
        // Of two keys of the account: what each has to have is not known.
        for key in ["key-1", "key-2"] {
            let check = limiter.check("units", &Key::of(key)).expect("the rule");
            let _ = Handle::current().block_on(async { limiter.acquire(&[check]).await });
        }
        let flushed = Handle::current().block_on(ledger.flush());
        flushed.expect("it writes");
        program
            .run(&["ledger", "reconcile"])
            .assert(1, &["left: of several keys", "none can be set"]);
        let ran = program.run(&["--json", "ledger", "reconcile", "--repair"]);
        ran.assert(1, &[]);
        let json: serde_json::Value = serde_json::from_str(&ran.out).expect("a document");
        assert_eq!(json["differ"][0]["repaired"], false, "{json}");
        program
            .run(&["ledger", "statement", account, "--month", "july"])
            .assert(2, &[]);
        let wrong = program.set("DATABASE_URL", "mysql://root:secret@host/db");
        wrong
            .run(&["ledger", "usage"])
            .assert(2, &[])
            .lacks(&["secret"]);
    })
    .await
    .expect("it runs");
}

#[test]
fn a_grant_or_a_check_under_a_durable_rule_is_in_its_ledger_or_refused() {
    let server = RedisServer::start(&[]);
    let rules = format!("{RULES}credits = true\ndurable = \"key\"\n");
    let program = Program::on(&server, &rules);
    let grant = "key grant units acme --id invoice-1 --units 10 --until 2d --because launch --yes";
    let grant: Vec<&str> = grant.split(' ').collect();
    let check = ["key", "check", "acme"];
    for command in [&grant, &check[..]] {
        let ran = program.run(command);
        ran.assert(2, &["units: the rule is durable", "DATABASE_URL"]);
    }
    let mistyped = ["ledger", "usage", "--database", "sqlite:typo.db"];
    let to_typo = [&grant[..], &mistyped[2..]].concat();
    for command in [&mistyped[..], &to_typo] {
        let ran = program.run(command);
        ran.assert(3, &["typo.db: there is no such file"]);
    }
    let url = format!("sqlite:{}/ledger.db", program.folder().display());
    let program = program.file("ledger.db", "").set("DATABASE_URL", &url);
    // The states of a cluster lie where the service has its partition.
    let cluster = [
        "ledger",
        "reconcile",
        "--redis",
        "redis-cluster://127.0.0.1:1",
    ];
    program
        .run(&cluster)
        .assert(2, &["say by which --partition"]);
    for (code, said) in [(0, "10 units were granted"), (1, "granted before")] {
        program.run(&grant).assert(code, &[said]);
    }
    let ran = program.run(&["ledger", "statement", "acme"]);
    ran.assert(0, &["\"grant\",\"units\"", ",10,10,", "\"invoice-1\""]);
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    program.run(&["ledger", "reconcile"]).assert(
        0,
        &["1 counters differ from the ledger by no more than their use meanwhile"],
    );
    // After Redis has lost its states, a check begins with what was used, as a request of the service does.
    for used in ["999", "998"] {
        program.run(&check).assert(0, &[used]);
        let _: String = server.ask(&["FLUSHALL"]);
    }
}
