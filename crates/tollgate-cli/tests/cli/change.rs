//! What operators set: overrides and switches for all processes.

use serde_json::json;

use crate::support::{Program, RedisServer, SECRET};

const RULES: &str = "version = 1\n[[rules]]\nname = \"search-per-key\"\nlimit = \"fixed_window 3/h\"\nby = \"header:x-api-key\"\n";

#[test]
fn what_operators_set_is_asked_for_shown_and_ended_and_a_push_leaves_it() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    let raise = "rules override search-per-key acme-key-1 200% --until 3d --because";
    let raise: Vec<&str> = raise.split(' ').chain(["ticket 4711"]).collect();
    program
        .run(&raise)
        .assert(3, &["there are no rules in Redis yet"]);
    Program::on_stored(&server)
        .run(&["key", "status", "acme-key-1"])
        .assert(3, &["There are none in Redis"]);
    program
        .run(&["rules", "push", "limits.toml"])
        .assert(0, &[]);

    // Nobody has answered, somebody has said no, and yes.
    let asked = "search-per-key: fixed_window 3/h → fixed_window 6/h for one key until";
    program
        .run(&raise)
        .assert(2, &[asked, "go on? [y/N]", "--yes"]);
    let shell = |answer: &str| {
        program.shell(&format!(
            "echo {answer} | tollgate rules switch '*' 50% --because 'slow database'"
        ))
    };
    shell("n").assert(1, &["all rules: 50 % of each limit", "nothing has changed"]);
    shell("y").assert(
        0,
        &[
            "revision 2 is stored; no process follows the rules yet",
            "warning: no process follows the rules of shop in Redis, so nothing has changed for clients yet",
            "`tollgate rules end 2` ends it",
        ],
    );
    let done = program.run(&[&raise[..], &["--yes", "--by", "bob"]].concat());
    done.assert(0, &[asked, "revision 3"])
        .lacks(&["acme-key-1"]);

    let push = ["rules", "push", "limits.toml", "--because", "a deployment"];
    program
        .run(&push)
        .assert(0, &["stored already", "stays in force: 2"]);
    let show = program.run(&["rules", "show"]);
    show.assert(
        0,
        &[
            "fixed_window 2/h",
            "50 % of each limit",
            "ticket 4711",
            "alice",
            "bob",
        ],
    )
    .lacks(&["acme-key-1", SECRET]);
    let (_, shown) = program.json(&["rules", "show"]);
    let entry = &shown["entries"][0];
    assert_eq!(
        (&entry["number"], &entry["set_by"]),
        (&json!(3), &json!("bob"))
    );
    assert_eq!(entry["reason"], json!("ticket 4711"));
    // Without a file, the commands about keys know it.
    let (_, status) = Program::on_stored(&server).json(&["key", "status", "acme-key-1"]);
    assert_eq!(
        status["rules"][0]["limit"],
        json!("fixed_window 3/h"),
        "{status}"
    );
    assert_eq!(status["rules"][0]["reason"], json!("ticket 4711"));

    // A deployment without the rule.
    let other = program.file("other.toml", &RULES.replace("search", "find"));
    let push = ["rules", "push", "other.toml"];
    other.run(&push).assert(
        0,
        &[
            "no longer fits: 3, search-per-key: 200%",
            "there is no rule",
        ],
    );
    other
        .run(&["rules", "show"])
        .assert(0, &["3 is not in force: there is no rule"]);

    let because = ["--because", "well again", "--yes"];
    let clear = [&["rules", "clear"], &because[..]].concat();
    other
        .run(&clear)
        .assert(0, &["ends: 2, all rules: 50 % of each limit", "revision 5"]);
    other
        .run(&clear)
        .assert(0, &["no switch is set; nothing has changed"]);
    other
        .run(&[&["rules", "end", "2"], &because[..]].concat())
        .assert(1, &["has the number"]);
    let alone = ["rules", "push", "other.toml", "--replace-all"];
    other
        .run(&alone)
        .assert(2, &["ends: 3, search-per-key: 200%", "go on?"]);
    // While it asks, another document is pushed.
    let races =
        "mkfifo gate; tollgate rules push other.toml --replace-all < gate 2> asked & exec 3> gate
        until grep 'go on' asked; do sleep 0.1; done
        tollgate rules push limits.toml; echo y >&3; wait $!; code=$?; cat asked; exit $code";
    let refused = ["somebody else has pushed revision 6"];
    other.shell(races).assert(3, &refused);
    other
        .run(&[&alone[..], &["--yes"]].concat())
        .assert(0, &["revision 7"]);
    let (_, shown) = other.json(&["rules", "show"]);
    assert_eq!(shown["entries"], json!([]));

    // What these bindings or this secret cannot read may be replaced.
    let other = other.file("bound.toml", &RULES.replace("header:x-api-key", "tenant"));
    let bound = ["rules", "push", "bound.toml", "--bind", "key:tenant"];
    other.run(&bound).assert(0, &["revision 8"]);
    let lists = ["unknown key", "ends all that operators set", "go on?"];
    other.run(&alone).assert(2, &lists);
    let other = other.set("TOLLGATE_SECRET", &SECRET.replace('9', "8"));
    other.run(&["rules", "show"]).assert(3, &["not signed"]);
    other.run(&push).assert(3, &["not signed", "--replace-all"]);
    other.run(&alone).assert(2, &["not signed", "go on?"]);
    let alone = [&alone[..], &["--yes"]].concat();
    other.run(&alone).assert(0, &["revision 9"]);
    let history = other.run(&["rules", "history"]);
    history
        .assert(
            0,
            &[
                "by bob  2 → 3  (ticket 4711)",
                "by alice  4 → 5  (well again)",
            ],
        )
        .lacks(&["acme-key-1"]);
}

#[test]
fn what_is_wrong_is_said_before_the_question_and_a_file_gets_lines() {
    let server = RedisServer::start(&[]);
    let program = Program::on(&server, RULES);
    program
        .run(&["rules", "push", "limits.toml"])
        .assert(0, &[]);
    for (args, code, words) in [
        (
            "rules override serach-per-key a 5/h --because x",
            2,
            "did you mean",
        ),
        (
            "rules override search-per-key a 5/h --because x --until 2020-01-01T00:00:00Z",
            2,
            "its end is past",
        ),
        (
            "rules override search-per-key a 5/h --because x --until friday",
            2,
            "write a time with its zone",
        ),
        (
            "rules override search-per-key a 5/h --until 2h",
            2,
            "--because",
        ),
        (
            "rules override search-per-key acme --hashed 5/h --because x",
            2,
            "32 hexadecimal digits",
        ),
        ("rules switch * 200% --because x", 2, "not a percentage"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        program.run(&args).assert(code, &[words]).lacks(&["go on?"]);
    }
    let hash = "9f86d081884c7d659a2feaa0c55ad015";
    let hashed = [
        "rules",
        "override",
        "search-per-key",
        hash,
        "9/h",
        "--hashed",
    ];
    let hashed = [&hashed[..], &["--because", "abuse", "--yes"]].concat();
    program.run(&hashed).assert(0, &["revision 2"]);
    program.run(&["rules", "show"]).assert(0, &["9f86d081"]);

    // No Redis is asked, and the lines are right.
    let files = Program::new().file("limits.toml", RULES);
    let add = "tollgate rules override search-per-key 'acme \"1\"' 200% --because 'ticket 4711' --file limits.toml";
    let added = files.shell(&format!(
        "{add} && {add} >> limits.toml && tollgate rules check limits.toml"
    ));
    added.assert(
        0,
        &["[[overrides]]\nrule = \"search-per-key\"\n", "no mistakes"],
    );
}

#[test]
fn a_client_is_blocked_under_all_rules_that_count_it_and_unblocked() {
    let server = RedisServer::start(&[]);
    let second = RULES.replace("search", "find").replace("version = 1\n", "");
    let address = second
        .replace("find-per-key", "per-ip")
        .replace("header:x-api-key", "client_ip");
    let pair = second.replace("find-per-key", "pair").replace(
        "\"header:x-api-key\"",
        "[\"header:x-api-key\", \"client_ip\"]",
    );
    let second = second + "when = { path = \"/find\" }\n";
    let program = Program::on(&server, &[RULES, &second, &address, &pair].concat());
    program
        .run(&["rules", "push", "limits.toml"])
        .assert(0, &[]);
    let because = ["--because", "ticket 4711", "--yes"];
    let run = |words: &str, until: &[&str]| {
        let words: Vec<_> = words.split(' ').collect();
        program.run(&[&words[..], until, &because[..]].concat())
    };
    run("key block search-per-key acme-key-1", &["--until", "2h"]).assert(
        0,
        &[
            "search-per-key: fixed_window 3/h → none for one key until",
            "search-per-key counts every request of the routes behind its layer",
            "not under find-per-key, which count by the same: --everywhere",
        ],
    );
    let status = || program.run(&["key", "status", "acme-key-1", "--rules", "limits.toml"]);
    let stored = Program::on_stored(&server);
    let status_of = |key: &str| stored.run(&["key", "status", key, "--rule", "search-per-key"]);
    status().assert(0, &["fixed_window 3/h"]);
    status_of("acme-key-1").assert(1, &["blocked for ", "denied by search-per-key"]);
    status_of("acme-key-2").assert(0, &[]);
    run("key block search-per-key acme-key-1 --everywhere", &[])
        .assert(
            0,
            &[
                "find-per-key: fixed_window 3/h → none for one key",
                "find-per-key counts requests with {\"path\":\"/find\"}",
                // In one change.
                "revision 4 is stored",
            ],
        )
        .lacks(&["per-ip"]);
    run("key block per-ip acme-key-1", &[]).assert(2, &["write an address"]);
    // A switch for all rules lifts no block, and one that names the rule hides none from who ends it.
    run("rules switch * off", &[]).assert(0, &[]);
    status_of("acme-key-1").assert(1, &["blocked", "denied by search-per-key"]);
    run("rules switch search-per-key off", &[]).assert(0, &[]);
    status_of("acme-key-1").assert(0, &["search-per-key: off"]);
    run("key unblock search-per-key acme-key-1 --everywhere", &[]).assert(
        0,
        &["ends: 3", "ends: 4", "forgets what the client has used"],
    );
    status_of("acme-key-1").assert(0, &[]);
    run("key unblock search-per-key acme-key-1", &[]).assert(1, &["no block of the client is set"]);
    // Of two parts.
    run("key block pair acme-key-1", &[]).assert(2, &["write a text for each"]);
    run("key block pair acme-key-1 192.0.2.7", &[]).assert(0, &[]);
    run("rules override pair acme-key-1\t192.0.2.8 none", &[]).assert(0, &[]);
    for address in ["192.0.2.7", "192.0.2.8"] {
        let status = ["key", "status", "acme-key-1", address];
        stored.run(&status).assert(1, &["denied by pair"]);
    }
}
