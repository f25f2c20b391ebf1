//! `tollgate rules`.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use serde_json::json;
use tollgate_redis::Secret;
use tollgate_rules::{Bindings, LiveRules, redis::RedisRules};

use crate::support::{Program, RedisServer, SECRET, words};

const RIGHT: &str = "\
version = 1

[[rules]]
name = \"search-per-key\"
limit = \"fixed_window 3/h\"
by = \"header:x-api-key\"
when = { path = \"/search\" }

[[rules]]
name = \"everybody\"
limit = \"1000/s burst 2000\"
by = \"constant\"
";

const WRONG: &str = "\
version = 1

[[rules]]
name = \"search-per-key\"
limit = \"20/sce burst 50\"
by = \"header:x-api-key\"
mode = \"shadwo\"
";

#[test]
fn check_shows_every_mistake_of_every_file_with_its_line_and_a_marker() {
    let program = Program::new()
        .file("right.toml", RIGHT)
        .file("wrong.toml", WRONG)
        .file(
            "other.yaml",
            "version: 1\nrules:\n  - name: a\n    limit: 0/min burst 5\n    by: client_ip\n",
        );
    let ran = program.run(&["rules", "check", "right.toml", "wrong.toml", "other.yaml"]);
    ran.assert(
        1,
        &[
            "right.toml: no mistakes",
            "wrong.toml:5:13: \"sce\" is not a unit of time",
            "5 | limit = \"20/sce burst 50\"\n  |             ^^^",
            "wrong.toml:7:8: ",
            "did you mean \"shadow\"?",
            "2 mistakes",
            "other.yaml:4:",
        ],
    );
    program
        .run(&["rules", "check", "right.toml"])
        .assert(0, &["everybody", "gcra 1000/s burst 2000"]);
    // A folder, whose files are one document.
    let program = program
        .file("limits/main.toml", RIGHT)
        .file("limits/team.toml", WRONG);
    program
        .run(&["rules", "check", "limits"])
        .assert(1, &["team.toml:5:"]);
    // What Kubernetes makes is no mistake, and a folder of lists neither.
    let program = program
        .file("limits/team.toml", "version = 1\n")
        .file("limits/..data/team.toml", WRONG)
        .file("limits/lists/deny.txt", "");
    let ran = program.run(&["rules", "check", "limits"]);
    ran.assert(0, &[]).lacks(&["warning: "]);
    let program = program.file("limits/teams/team.toml", WRONG);
    let ran = program.run(&["rules", "check", "limits"]);
    ran.assert(0, &["warning: limits/teams: ", "is not read"]);
    program
        .run(&["rules", "check", "nowhere.toml", "wrong.toml"])
        .assert(3, &["nowhere.toml", "No such file"]);
    let (code, json) = program.json(&["rules", "check", "right.toml", "wrong.toml"]);
    assert_eq!(
        (code, &json["ok"], &json["documents"][0]["ok"]),
        (1, &json!(false), &json!(true))
    );
    let mistakes = json["documents"][1]["mistakes"].as_array().expect("a list");
    assert_eq!(mistakes.len(), 2);
    assert_eq!(
        (&mistakes[0]["line"], &mistakes[0]["column"]),
        (&json!(5), &json!(13))
    );
}

#[test]
fn diff_says_what_changes_and_names_no_client() {
    let after = RIGHT.replace("3/h", "5/h").replace("/search", "/find")
        + "[[rules]]\nname = \"new\"\nlimit = \"1/s\"\nby = \"client_ip\"\n\
           [[overrides]]\nrule = \"search-per-key\"\nkey = \"acme-key-1\"\nlimit = \"fixed_window 9/h\"\nreason = \"ticket 4711\"\n\
           [[switches]]\nrules = \"*\"\nlimit = \"50%\"\n\
           [[groups]]\nname = \"all\"\nrules = [\"search-per-key\", \"everybody\"]\n";
    let program = Program::new().file("a.toml", RIGHT).file("b.toml", &after);
    let ran = program.run(&["rules", "diff", "a.toml", "b.toml"]);
    ran.assert(
        1,
        &[
            "search-per-key: fixed_window 3/h → fixed_window 5/h",
            "search-per-key: when {\"path\": \"/search\"} → {\"path\": \"/find\"}",
            "new: added, gcra 1/s",
            "for one key (ticket 4711)",
            "all rules: 50 % of each limit",
            "group all: (none) → [",
        ],
    )
    .lacks(&["acme-key-1"]);
    program
        .run(&["rules", "diff", "a.toml", "a.toml"])
        .assert(0, &["no difference"]);
    // Not the 1 of a difference.
    program
        .run(&["rules", "diff", "a.toml", "nowhere.toml"])
        .assert(3, &["nowhere.toml", "No such file"]);
    let (code, json) = program.json(&["rules", "diff", "b.toml", "a.toml"]);
    assert_eq!(code, 1);
    assert!(
        json["changes"]
            .as_array()
            .is_some_and(|changes| changes.len() >= 6),
        "{json}"
    );
}

const EXPLAINED: &str = "\
version = 1

[[rules]]
name = \"search-per-key\"
limit = \"20/s burst 50\"
by = \"header:x-api-key\"
when = { path = \"/search\", methods = [\"GET\"] }
plan = \"plan\"
plans = { gold = \"200/s\" }

[[rules]]
name = \"exports\"
limit = \"5/min\"
by = \"header:x-api-key\"
when = { path = \"/exports\" }
cost = \"words\"

[[rules]]
name = \"reads\"
limit = \"60/min\"
by = \"client_ip\"
when = { methods = [\"GET\"] }
mode = \"shadow\"

[[rules]]
name = \"all\"
limit = \"1000/min\"
by = \"constant\"
unless = { header = { name = \"x-probe\" } }

[[rules]]
name = \"retired\"
limit = \"1/min\"
by = \"constant\"
mode = \"off\"

[[groups]]
name = \"by-path\"
rules = [\"exports\", \"all\"]

[[overrides]]
rule = \"search-per-key\"
key = \"acme-key-1\"
limit = \"500/s\"
until = 2999-12-01T00:00:00Z
reason = \"launch week\"

[[switches]]
rules = [\"all\"]
limit = \"50%\"
";

const BOUND: &[&str] = &[
    "--rules",
    "limits.toml",
    "--bind",
    "plan:plan=gold",
    "--bind",
    "cost:words=3",
];

#[test]
fn explain_says_what_waits_and_which_responses_count() {
    let text = "\
version = 1

[[rules]]
name = \"exports\"
limit = \"concurrent 3\"
by = \"constant\"
wait = \"5s\"

[[rules]]
name = \"log-ins\"
limit = \"sliding_log 3/10min\"
by = \"constant\"
count_if = { status = [401, 403], not = \"captcha\" }
cost_by_response = \"tries\"
";
    let program = Program::new().file("limits.toml", text);
    let explain = ["rules", "explain", "--rules", "limits.toml"];
    program.run(&explain).assert(
        3,
        &[
            "--bind response-condition:NAME",
            "--bind response-cost:NAME",
        ],
    );
    let bound = [
        "--bind",
        "response-condition:captcha",
        "--bind",
        "response-cost:tries",
    ];
    let explain = [&explain[..], &bound].concat();
    program.run(&explain).assert(
        0,
        &[
            "concurrent 3",
            r#"log-ins: gives the units back unless the response is {"status": [401, 403], "not": "captcha"}"#,
        ],
    );
    let (_, json) = program.json(&explain);
    assert_eq!(json["rules"][0]["waits_seconds"], json!(5.0));
    assert_eq!(json["rules"][0]["count_if"], json!(null));
    assert_eq!(
        json["rules"][1]["count_if"],
        json!(r#"{"status": [401, 403], "not": "captcha"}"#)
    );
}

#[test]
fn explain_prints_a_table_with_the_clients_hash_and_not_its_key() {
    let program = Program::new()
        .file("limits.toml", EXPLAINED)
        .set("TOLLGATE_SECRET", SECRET);
    let args = [
        &["rules", "explain"],
        BOUND,
        &["--path", "/search", "-H", "x-api-key: acme-key-1"],
    ]
    .concat();
    let ran = program.run(&args);
    ran.assert(
        0,
        &[
            "an override until 2999-12-01T00:00:00Z (launch week)",
            "search-per-key: the client is ",
            "all: switched, 50 % of each limit",
        ],
    )
    .lacks(&["acme-key-1", SECRET]);
    // The same for programs, of a request that has no key and is exempt from a rule.
    let (_, json) = program.json(&args);
    let search = &json["rules"][0];
    for (field, value) in [
        ("counts", json!(true)),
        ("limit", json!("gcra 500/s")),
        ("reason", json!("launch week")),
        ("until", json!("2999-12-01T00:00:00Z")),
    ] {
        assert_eq!(search[field], value, "{json}");
    }
    let exempt = ["--method", "POST", "--path", "/exports", "-H", "x-probe: 1"];
    let (_, json) = program.json(&[&["rules", "explain"], BOUND, &exempt].concat());
    assert_eq!(json["rules"][1]["units"], json!(3), "{json}");
    assert_eq!(
        json["rules"][1]["shares_the_bucket_without_key"],
        json!(true)
    );
    let outcome = |rule: usize| json["rules"][rule]["outcome"].as_str();
    assert_eq!(outcome(0), Some("its `when` does not hold"));
    assert_eq!(outcome(3), Some("\"exports\" is more specific"));
    program
        .run(&["rules", "explain", "--rules", "limits.toml"])
        .assert(3, &["hint: ", "--bind plan:NAME"]);
    program
        .run(&[&["rules", "explain"], BOUND, &["--path", "search"]].concat())
        .assert(2, &["begins with a slash"]);
    program
        .run(&[&["rules", "explain"], BOUND, &["-H", "nothing"]].concat())
        .assert(2, &["no colon"]);
}

#[test]
fn a_push_is_in_the_history_and_a_dry_run_changes_nothing() {
    let server = RedisServer::start(&[]);
    let own = "[[overrides]]\nrule = \"search-per-key\"\nkey = \"acme-key-1\"\nlimit = \"fixed_window 9/h\"\n";
    let program = Program::on(&server, &(RIGHT.to_owned() + own));
    program
        .run(&["rules", "history"])
        .assert(0, &["there are no rules in Redis"]);
    let push = ["rules", "push", "limits.toml", "--because", "ticket 4711"];
    program
        .run(&[&push[..], &["--dry-run"]].concat())
        .assert(0, &["there are none in Redis yet"]);
    program.run(&push).assert(0, &["revision 1 is stored"]);
    program
        .run(&push)
        .assert(0, &["revision 1 is stored already"]);
    program
        .run(&[&push[..], &["--dry-run"]].concat())
        .assert(0, &["no other than revision 1"]);
    let program = program.file("limits.toml", &(RIGHT.replace("3/h", "4/h") + own));
    let ran = program.run(&[&push[..], &["--dry-run"]].concat());
    ran.assert(
        0,
        &[
            "they would change revision 1",
            "fixed_window 3/h → fixed_window 4/h",
        ],
    )
    .lacks(&["one key"]);
    program
        .run(&push)
        .assert(0, &["revision 2 is stored, in the place of 1"]);
    let ran = program.run(&["rules", "history"]);
    ran.assert(
        0,
        &[
            "revision 2 is stored",
            "by alice",
            "1 → 2",
            "(ticket 4711)",
            "fixed_window 3/h → fixed_window 4/h",
        ],
    )
    .lacks(&["acme-key-1", SECRET]);
    let (_, json) = program.json(&["rules", "history", "--most", "1"]);
    assert_eq!(json["history"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&json["revision"], &json["history"][0]["actor"]),
        (&json!(2), &json!("alice"))
    );

    // What is wrong is not pushed, nor what is signed with another secret believed.
    let program = program.file("limits.toml", WRONG);
    program.run(&push).assert(1, &["limits.toml:5:13"]);
    let of_none = ["rules", "push", "nowhere.toml"];
    program.run(&of_none).assert(3, &["nowhere.toml"]);
    let program = program.set("TOLLGATE_SECRET", &"ab".repeat(32));
    program
        .run(&["rules", "history"])
        .assert(3, &["is not signed with the secret"]);
    let program = program.set("REDIS_URL", "redis://127.0.0.1:1");
    program.run(&["rules", "history"]).assert(3, &["Redis"]);
    // A namespace that is none is a mistake of the command line.
    let program = program.set("TOLLGATE_NAMESPACE", "{shop");
    program.run(&["rules", "history"]).assert(2, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_says_how_many_processes_keep_rules_that_redis_has_lost() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RIGHT);
    program
        .run(&["rules", "push", "limits.toml"])
        .assert(0, &["revision 1 is stored"]);
    let secret = Secret::from_text(SECRET).expect("a secret");
    let redis = RedisRules::new(server.url(), "shop", &secret).expect("an address");
    let followed = LiveRules::follow(redis.source(), Bindings::new()).await;
    let rules = followed.expect("there are rules");
    let heard = async {
        while rules.status().fleet.is_none_or(|it| it.processes == 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(60), heard).await;
    heard.expect("Redis has heard of the process");
    let _: i64 = server.ask(&["DEL", "{shop}:rules"]);
    let words =
        "there are no rules in Redis; 1 of 1 processes keep those that were there: push again";
    program.run(&["rules", "history"]).assert(0, &[words]);
    let (_, json) = program.json(&["rules", "history"]);
    assert_eq!((&json["processes"], &json["ahead"]), (&json!(1), &json!(1)));
    program
        .run(&["rules", "push", "limits.toml"])
        .assert(0, &["revision 2 is stored"]);
}

#[test]
fn names_that_code_binds_have_the_values_of_the_command_line() {
    let text = "version = 1\n[[rules]]\nname = \"api\"\nlimit = \"5/min\"\nby = \"constant\"\nquota_by = \"contract\"\n\
                when = \"is-beta\"\n";
    let program = Program::new().file("limits.toml", text);
    let explain = |condition: &str, quota: &str| {
        let args = ["rules", "explain", "--rules", "limits.toml"];
        let (condition, quota) = (format!("condition:{condition}"), format!("quota:{quota}"));
        let bound = ["--bind", &condition, "--bind", &quota];
        let (code, json) = program.json(&[args, bound].concat());
        assert_eq!(code, 0, "{json}");
        (
            json["rules"][0]["counts"] == json!(true),
            json["rules"][0]["limit"].to_string(),
        )
    };
    assert_eq!(
        explain("is-beta=true", "contract=70/min"),
        (true, "\"gcra 70/min\"".to_owned())
    );
    assert_eq!(
        explain("is-beta=true", "contract"),
        (true, "\"gcra 5/min\"".to_owned())
    );
    assert!(!explain("is-beta=false", "contract").0);
    assert!(!explain("is-beta", "contract").0);
    for (bound, says) in [
        ("condition:is-beta=maybe", "it is true or false"),
        ("quota:contract=70/mni", "--bind quota:contract=70/mni"),
        ("cost:words=many", "a whole number"),
        ("words", "write it as key:NAME"),
        ("key", "it has no name"),
    ] {
        let args = ["rules", "check", "limits.toml"];
        program
            .run(&[&args[..], &["--bind", bound]].concat())
            .assert(2, &[says]);
    }
}

#[test]
fn a_reader_that_stops_is_no_failure_and_a_full_disk_is_one() {
    let program = Program::new().file("limits.toml", RIGHT);
    let check = ["rules", "check", "limits.toml"];
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    program.run_into(&check, writer).assert(0, &[]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    program
        .run_into(&check, full.expect("the system has it"))
        .assert(3, &["the standard output"]);
}

/// An address in front of a server. Its connections end with what is said of a push by this author: the reply to it arrives, or
/// is lost.
fn until_pushed(server: &RedisServer, author: &'static str, arrives: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = listener.local_addr().expect("a bound socket");
    let server = format!("127.0.0.1:{}", server.port());
    let is_over = Arc::new(AtomicBool::new(false));
    let ends: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if is_over.load(SeqCst) {
                break;
            }
            let redis = TcpStream::connect(&server).expect("the server");
            let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
            let both = [copy(&client), copy(&redis)];
            ends.lock().expect("whole").extend(both);
            let is_pushed = Arc::new(AtomicBool::new(false));
            let ways = [(copy(&client), copy(&redis), true), (redis, client, false)];
            for (mut from, mut to, asks) in ways {
                let (is_pushed, is_over) = (Arc::clone(&is_pushed), Arc::clone(&is_over));
                let ends = Arc::clone(&ends);
                thread::spawn(move || {
                    let mut bytes = [0; 65_536];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        let text = String::from_utf8_lossy(&bytes[..read]);
                        is_pushed.fetch_or(asks && text.contains(author), SeqCst);
                        // The script is loaded first.
                        let is_last = !asks && is_pushed.load(SeqCst) && text.starts_with('*');
                        if (!is_last || arrives) && to.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                        if is_last {
                            is_over.store(true, SeqCst);
                            let ends = ends.lock().expect("whole");
                            for end in ends.iter() {
                                let _ = end.shutdown(Shutdown::Both);
                            }
                            break;
                        }
                    }
                });
            }
        }
    });
    format!("redis://{place}")
}

#[test]
fn push_says_what_is_stored_also_where_the_connection_breaks() {
    for (arrives, code, words) in [
        (
            true,
            0,
            "revision 1 is stored; how many processes follow the rules is not known",
        ),
        (
            false,
            3,
            "the push may have arrived nevertheless: `tollgate rules history`",
        ),
    ] {
        let server = RedisServer::start(&[]);
        let program = Program::on(&server, RIGHT);
        let address = until_pushed(&server, "alice-4711", arrives);
        let push = ["rules", "push", "limits.toml", "--by", "alice-4711"];
        Program::on(&server, RIGHT)
            .set("REDIS_URL", &address)
            .run(&push)
            .assert(code, &[words]);
        program
            .run(&["rules", "history"])
            .assert(0, &["revision 1 is stored"]);
    }
}

#[test]
fn a_document_for_the_edge_is_checked_and_explained_as_the_server_reads_it() {
    let rules = "version = 1\n[[rules]]\nname = 'alerts'\nlimit = '5/d'\nby = 'descriptor:to'\n\
        when = { domain = 'sms', descriptor = [{ kind = 'alert' }, 'to'] }\n";
    let program = Program::new().file("limits.toml", rules);
    let check = ["rules", "check", "limits.toml"];
    program
        .run(&check)
        .assert(1, &["give the rule at = \"edge\""]);
    program
        .run(&[&check[..], &["--at", "edge"]].concat())
        .assert(0, &["no mistakes"]);
    let explain = |entries: &[&str]| {
        let args = words("rules explain --rules limits.toml --at edge --domain sms");
        program.run(&[&args[..], entries].concat())
    };
    explain(&["--descriptor", "kind=alert", "--descriptor", "to=+44=1"])
        .assert(0, &["alerts  yes"]);
    explain(&["--descriptor", "to=+44"]).assert(0, &["no rule counts this request"]);
    explain(&["--descriptor", "to"]).assert(2, &["write it as tenant=acme"]);
    let of_service = words("rules explain --rules limits.toml --descriptor to=1");
    program.run(&of_service).assert(2, &["--at <SIDE>"]);
}

#[test]
fn what_is_imported_is_a_document_without_mistakes() {
    let yaml = "domain: sms\ndescriptors:\n  - key: to\n    rate_limit: { unit: day, requests_per_unit: 5 }\n";
    let program = Program::new().file("sms.yaml", yaml);
    let import = ["rules", "import", "sms.yaml"];
    let imported = program.run(&import);
    imported.assert(0, &["limit = \"fixed_window 5/d\""]);
    let program = program.file("limits.toml", &imported.out);
    program
        .run(&["rules", "check", "limits.toml"])
        .assert(0, &["no mistakes"]);
    let program = program.file("sms.yaml", &yaml.replace("day", "dya"));
    program.run(&import).assert(
        3,
        &[
            "sms.yaml:4:25: unknown unit \"dya\"",
            "did you mean \"day\"?",
        ],
    );
}
