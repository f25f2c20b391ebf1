//! `tollgate doctor`, on servers that are as they should be, and on servers that are not.

use serde_json::Value;

use crate::support::{
    Program, RedisCluster, RedisServer, SECRET, fill, server_program, start_sentinel, until,
};

const WELL: &[&str] = &["--maxmemory", "256mb", "--maxmemory-policy", "noeviction"];

const RULES: &str =
    "version = 1\n[[rules]]\nname = \"api\"\nlimit = \"60/min\"\nby = \"client_ip\"\n";

/// What is found.
struct Findings(Vec<Value>);

impl Findings {
    /// With this exit code.
    fn of(program: &Program, code: i32) -> Self {
        let (ended, json) = program.json(&["doctor"]);
        assert_eq!(ended, code, "{json:#}");
        let findings = json["findings"].as_array().expect("a list").clone();
        for finding in &findings {
            // A remedy for each finding.
            assert_eq!(
                finding["level"] == "ok",
                finding["remedy"] == "",
                "{json:#}"
            );
        }
        Self(findings)
    }

    fn all<'a>(&'a self, level: &str, check: &str) -> Vec<&'a Value> {
        let all = self.0.iter();
        all.filter(|it| it["check"] == check && it["level"] == level)
            .collect()
    }

    /// One of this check and level has these words, in this order: first what is wrong, and then what helps.
    fn assert(&self, level: &str, check: &str, words: &[&str]) {
        let says = |finding: &&Value| {
            let text = format!("{} {}", finding["says"], finding["remedy"]);
            let mut rest = Some(&*text);
            for word in words {
                rest = rest.and_then(|rest| Some(rest.split_once(word)?.1));
            }
            rest.is_some()
        };
        let found = self.all(level, check);
        assert!(
            found.iter().any(says),
            "no {level} about {check} with {words:?} in {:#?}",
            self.0
        );
    }
}

#[test]
fn servers_of_each_version_are_well_when_they_are_set_up_well() {
    for program in [
        "redis-server".to_owned(),
        server_program("redis-6.2"),
        server_program("valkey-9.1"),
    ] {
        let server = RedisServer::start_program(&program, WELL);
        let findings = Findings::of(&Program::on(&server, RULES), 0);
        for check in [
            "role",
            "memory",
            "eviction",
            "persistence",
            "access",
            "clock",
        ] {
            findings.assert("ok", check, &[]);
        }
        findings.assert("note", "instances", &["no process", "shop"]);
        // Nothing is left behind.
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
    }
}

#[test]
fn a_server_that_evicts_forgets_after_a_restart_or_is_full_is_found_out() {
    let server = RedisServer::start(&["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"]);
    let daily = RULES.replace("60/min", "fixed_window 60/d");
    Findings::of(&Program::on(&server, &daily), 1).assert(
        "warning",
        "persistence",
        &["1 d", "appendonly yes"],
    );
    fill(&server);
    let findings = Findings::of(&Program::on(&server, RULES), 1);
    findings.assert("error", "memory", &["full", "cap_new_keys"]);
    findings.assert("error", "write", &["on_store_error", "OOM"]);
    for (name, value) in [("maxmemory-policy", "allkeys-lru"), ("maxmemory", "0")] {
        let _: String = server.ask(&["CONFIG", "SET", name, value]);
    }
    let program = Program::on(&server, RULES);
    let findings = Findings::of(&program, 1);
    findings.assert(
        "error",
        "eviction",
        &["allkeys-lru", "limits are forgotten"],
    );
    findings.assert("warning", "memory", &["without a bound", "set maxmemory"]);
    // For people, the worst is first.
    let ran = program.run(&["doctor"]);
    let remedy = "→ CONFIG SET maxmemory-policy noeviction";
    ran.assert(1, &[remedy]);
    assert!(ran.out.starts_with("error    eviction"), "{}", ran.out);
}

#[test]
fn a_replica_is_an_error_that_names_its_master() {
    let master = RedisServer::start(WELL);
    let port = master.port().to_string();
    let replica = RedisServer::start(&[WELL, &["--replicaof", "127.0.0.1", &port]].concat());
    until(&master, &["INFO", "replication"], "state=online");
    let named = format!("127.0.0.1:{port}");
    Findings::of(&Program::on(&replica, RULES), 1).assert("error", "role", &["replica", &named]);
    Findings::of(&Program::on(&master, RULES), 0).assert("ok", "role", &["replicas: 1"]);
}

#[test]
fn a_user_with_too_few_rights_sees_which_are_missing() {
    let server = RedisServer::start(WELL);
    let rights = "on >sesame resetkeys ~{shop}:* ~shop:{* resetchannels -@all +eval +evalsha +get +set +setrange +del +time +pttl \
                  +zadd +zremrangebyscore +zcard +zrange +pexpire";
    let url = server.url_of("limits", "sesame");
    let program = Program::on(&server, RULES).set("REDIS_URL", &url);
    let program = program.file("pushed.toml", RULES);
    let with = |rights: &str, code: i32| {
        let command = ["ACL", "SETUSER", "limits"].into_iter();
        let command: Vec<_> = command.chain(rights.split_whitespace()).collect();
        let _: String = server.ask(&command);
        Findings::of(&program, code)
    };
    // All that the guide gives.
    let findings = with(rights, 0);
    findings.assert("ok", "access", &[]);
    findings.assert("note", "info", &["may not be read", "info", "+config|get"]);
    findings.assert(
        "note",
        "rules",
        &["ACL SETUSER limits &{shop}:rules", "+@hash"],
    );
    let pushed = program.run(&["rules", "push", "pushed.toml"]);
    pushed.assert(3, &["rights of their own", "tollgate doctor"]);
    // Without a command, in turn.
    for (missing, level, check) in [
        ("set", "error", "access"),
        ("time", "error", "access"),
        ("evalsha", "error", "access"),
        ("eval", "error", "access"),
        ("zadd", "warning", "access"),
        ("pttl", "warning", "access"),
    ] {
        let remedy = "ACL SETUSER limits on resetkeys ~{shop}:* ~shop:{*";
        with(&format!("{rights} -{missing}"), 1).assert(level, check, &[missing, remedy]);
    }
    // On keys of another namespace, and on none at all: each kind of key is named once.
    with(&rights.replace("{shop}", "{other}"), 1).assert("error", "access", &["{shop}:doctor"]);
    with(&format!("{rights} resetkeys"), 1).assert(
        "error",
        "access",
        &["may not touch keys such as {shop}:doctor, touch keys such as shop:{doctor}:doctor: no request"],
    );
    // The password is wrong, and not shown; or there is none.
    let _: String = server.ask(&["ACL", "SETUSER", "default", "resetpass"]);
    for url in [server.url_of("limits", "wrong-one"), server.url()] {
        let program = Program::on(&server, RULES).set("REDIS_URL", &url);
        for command in [&["doctor"][..], &["rules", "show"]] {
            let ran = program.run(command);
            ran.assert(3, &["give the user and the password"])
                .lacks(&["wrong-one"]);
        }
    }
}

#[test]
fn the_processes_of_a_namespace_are_counted_and_compared() {
    let server = RedisServer::start(WELL);
    let program = Program::on(&server, RULES);
    for (set, member) in [
        ("{shop}:instances", "a"),
        ("{shop}:instances", "b"),
        ("{shop}:quotas", "api\nbucket(60 per 60s, 60 at once)"),
        ("{shop}:quotas", "api\nbucket(90 per 60s, 90 at once)"),
        ("{shop}:quotas", "\none 0123456789abcdef"),
        ("{shop}:quotas", "\nkey 0123456789abcdef"),
    ] {
        let _: u64 = server.ask(&["ZADD", set, "1", member]);
    }
    let findings = Findings::of(&program, 1);
    findings.assert("ok", "instances", &["shop: 2"]);
    findings.assert(
        "warning",
        "quotas",
        &["2 quotas for the rule api", "90 per 60s", "if it lasts"],
    );
    findings.assert("error", "keys", &["different partitions, key and one"]);
    findings.assert("error", "keys", &["the secret here is not that"]);
}

#[test]
fn a_service_is_recognised_by_its_secret() {
    let server = RedisServer::start(WELL);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        use tollgate::{Limiter, MINUTE, Quota, Rule};
        use tollgate_redis::{Keys, RedisStore, Secret};

        let keys = Keys::hashed(Secret::from_text(SECRET).expect("a secret"));
        let store = RedisStore::builder(&*server.url(), "shop", keys).connect();
        let rule = Rule::new("api", Quota::gcra(60, MINUTE));
        let limiter = Limiter::new(store.expect("a valid address"), [rule]);
        let _limiter = limiter.expect("a valid rule");
        // The second part of a heartbeat.
        for _ in 0..3_000 {
            if server.ask::<u64>(&["ZCARD", "{shop}:quotas"]) == 2 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    let program = Program::on(&server, RULES);
    let findings = Findings::of(&program, 0);
    findings.assert("ok", "instances", &["shop: 1"]);
    findings.assert("ok", "keys", &[]);
    let findings = Findings::of(&program.set("TOLLGATE_SECRET", &"ab".repeat(32)), 1);
    findings.assert("error", "keys", &["the secret here is not that"]);
}

#[test]
fn a_cluster_is_examined_server_by_server() {
    let cluster = RedisCluster::start();
    let program = Program::on(cluster.server(0), RULES).set("REDIS_URL", &cluster.url());
    let findings = Findings::of(&program, 1);
    findings.assert("ok", "cluster", &["3 shards", "16384 of 16384 slots"]);
    findings.assert("warning", "cluster", &["cluster-require-full-coverage"]);
    let access = findings.all("ok", "access");
    let servers: std::collections::BTreeSet<_> =
        access.iter().map(|it| it["server"].to_string()).collect();
    assert_eq!(servers.len(), 3, "{access:?}");
    // A key that lies elsewhere is no refused write, and a server of the cluster not the wrong address.
    for check in ["write", "cluster"] {
        assert_eq!(findings.all("error", check), Vec::<&Value>::new());
    }
    // One of its servers, by an address of one server.
    let of_one = Program::on(cluster.server(1), RULES);
    Findings::of(&of_one, 1).assert("error", "cluster", &["redis-cluster://"]);
    let _: String = cluster.server(0).ask(&["CLUSTER", "DELSLOTS", "0"]);
    Findings::of(&program, 1).assert(
        "error",
        "cluster",
        &["16383 of 16384 slots", "are not decided", "--cluster fix"],
    );
    let acl = ["ACL", "SETUSER", "default", "-cluster|slots"];
    let _: String = cluster.server(0).ask(&acl);
    Findings::of(&program, 1).assert("error", "cluster", &["may not be read", "+cluster|slots"]);
    // A single server that is named as a cluster.
    let server = RedisServer::start(WELL);
    let address = format!("redis-cluster://127.0.0.1:{}", server.port());
    let program = program.set("REDIS_URL", &address);
    Findings::of(&program, 1).assert("error", "cluster", &["a single server", "redis://"]);
}

#[test]
fn behind_sentinels_it_is_the_master_that_is_examined() {
    let master = RedisServer::start(WELL);
    let (sentinel, _settings) = start_sentinel(&master);
    let with = |name: &str| {
        let address = format!("redis-sentinel://127.0.0.1:{}/{name}", sentinel.port());
        Program::on(&master, RULES).set("REDIS_URL", &address)
    };
    let findings = Findings::of(&with("limits"), 0);
    findings.assert("ok", "role", &["a master"]);
    findings.assert("ok", "access", &[]);
    with("others")
        .run(&["doctor"])
        .assert(3, &["the master \"others\" cannot be asked"]);
}

#[test]
fn a_server_that_is_not_there_is_no_finding() {
    let program = Program::new().set("TOLLGATE_NAMESPACE", "shop");
    for (address, words) in [
        ("redis://127.0.0.1:1", "is the server running"),
        ("redis-cluster://127.0.0.1:1", "127.0.0.1:1 cannot be asked"),
    ] {
        let ran = program.run(&["doctor", "--redis", address]);
        ran.assert(3, &[words]);
    }
}
