//! `tollgate doctor`, on servers that are as they should be, and on servers that are not.

use serde_json::Value;

use crate::support::{Program, RedisCluster, RedisServer, SECRET, server_program};

const WELL: &[&str] = &["--maxmemory", "256mb", "--maxmemory-policy", "noeviction"];

const RULES: &str =
    "version = 1\n[[rules]]\nname = \"api\"\nlimit = \"60/min\"\nby = \"client_ip\"\n";

/// What is found, with its exit code.
fn examined(program: &Program, args: &[&str]) -> (i32, Vec<Value>) {
    let (code, json) = program.json(&[&["doctor", "--deadline", "10000"], args].concat());
    let findings = json["findings"]
        .as_array()
        .unwrap_or_else(|| panic!("{json}"));
    for finding in findings {
        let is_fine = finding["level"] == "ok";
        assert_eq!(
            is_fine,
            finding["remedy"] == "",
            "a remedy for each finding: {finding}"
        );
    }
    (code, findings.clone())
}

/// The finding of a check, which is of this level.
fn finding<'a>(findings: &'a [Value], check: &str, level: &str) -> &'a Value {
    let found = findings
        .iter()
        .find(|finding| finding["check"] == check && finding["level"] == level);
    found.unwrap_or_else(|| panic!("no {level} about {check} in {findings:#?}"))
}

/// These words, in this order: first what is wrong, and then what helps.
fn says(finding: &Value, words: &[&str]) {
    let text = format!("{} {}", finding["says"], finding["remedy"]);
    let mut rest = &*text;
    for word in words {
        let Some((_, behind)) = rest.split_once(word) else {
            panic!("{word:?} is not in {rest}, the rest of {text}");
        };
        rest = behind;
    }
}

#[test]
fn servers_of_each_version_are_well_when_they_are_set_up_well() {
    for (program, version) in [
        ("redis-server".to_owned(), "Redis 7.0"),
        (server_program("redis-6.2"), "Redis 6.2"),
        (server_program("valkey-9.1"), "Valkey 9.1"),
    ] {
        let server = RedisServer::start_program(&program, WELL);
        let program = Program::on(&server, RULES);
        let (_, findings) = examined(&program, &[]);
        let about = findings
            .iter()
            .find(|finding| finding["check"] == "version")
            .expect("a version");
        says(about, &[version]);
        for check in [
            "role",
            "memory",
            "eviction",
            "evicted",
            "persistence",
            "access",
            "latency",
            "clock",
            "neighbours",
        ] {
            finding(&findings, check, "ok");
        }
        says(
            finding(&findings, "login", "note"),
            &["no password", "ACL SETUSER"],
        );
        says(
            finding(&findings, "instances", "note"),
            &["no process", "shop"],
        );
        // Nothing is left behind.
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
    }
}

#[test]
fn a_server_that_evicts_is_an_error() {
    let server = RedisServer::start(&["--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru"]);
    let (code, findings) = examined(&Program::on(&server, RULES), &[]);
    assert_eq!(code, 1);
    says(
        finding(&findings, "eviction", "error"),
        &[
            "allkeys-lru",
            "long quotas",
            "CONFIG SET maxmemory-policy noeviction",
        ],
    );
    let ran = Program::on(&server, RULES).run(&["doctor"]);
    ran.assert(
        1,
        &[
            "error    eviction",
            "→ CONFIG SET maxmemory-policy noeviction",
        ],
    );
}

#[test]
fn a_full_server_is_an_error() {
    let server = RedisServer::start(&["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"]);
    server.fill();
    let (code, findings) = examined(&Program::on(&server, RULES), &[]);
    assert_eq!(code, 1);
    says(
        finding(&findings, "memory", "error"),
        &["full", "raise maxmemory", "cap_new_keys"],
    );
    says(
        finding(&findings, "write", "error"),
        &["OOM", "on_store_error"],
    );
    // Without a bound it is never full, and that is a warning.
    let server = RedisServer::start(&[]);
    let (code, findings) = examined(&Program::on(&server, RULES), &[]);
    assert_eq!(code, 1);
    says(
        finding(&findings, "memory", "warning"),
        &["without a bound", "set maxmemory"],
    );
}

#[test]
fn a_replica_is_an_error_that_names_its_master() {
    let master = RedisServer::start(WELL);
    let port = master.port().to_string();
    let replica = RedisServer::start(&[WELL, &["--replicaof", "127.0.0.1", &port]].concat());
    replica.until(&["INFO", "replication"], "master_link_status:up");
    let (code, findings) = examined(&Program::on(&replica, RULES), &[]);
    assert_eq!(code, 1);
    says(
        finding(&findings, "role", "error"),
        &["replica", &format!("127.0.0.1:{port}")],
    );
    let (_, findings) = examined(&Program::on(&master, RULES), &[]);
    says(
        finding(&findings, "role", "ok"),
        &["a master with a replica"],
    );
}

#[test]
fn a_user_with_too_few_rights_sees_which_are_missing() {
    let server = RedisServer::start(WELL);
    let rights = "on >sesame resetkeys ~{shop}:* ~shop:{* resetchannels -@all +eval +evalsha +get +set +setrange +del +time";
    let heartbeats = "+zadd +zremrangebyscore +zcard +zrange +pexpire";
    let set = |rights: &str| {
        let command = ["ACL", "SETUSER", "limits"]
            .into_iter()
            .chain(rights.split(' '));
        let _: String = server.ask(&command.collect::<Vec<_>>());
    };
    let program = Program::on(&server, RULES).set("REDIS_URL", &server.url_of("limits", "sesame"));
    // All that the guide gives.
    set(&format!("{rights} {heartbeats}"));
    let (_, findings) = examined(&program, &[]);
    finding(&findings, "access", "ok");
    says(
        finding(&findings, "version", "note"),
        &["may not be read", "'info' command", "+config|get"],
    );
    // Without a command, in turn.
    for (missing, level, check) in [
        ("set", "error", "access"),
        ("setrange", "error", "access"),
        ("time", "error", "access"),
        ("evalsha", "error", "access"),
        ("zadd", "warning", "heartbeats"),
    ] {
        set(&format!("{rights} {heartbeats} -{missing}"));
        let (code, findings) = examined(&program, &[]);
        let found = finding(&findings, check, level);
        assert_eq!(code, 1);
        says(
            found,
            &[
                missing,
                "ACL SETUSER limits on resetkeys ~{shop}:* ~shop:{*",
                "+zcard",
            ],
        );
    }
    set(&format!("{rights} -eval"));
    let (_, findings) = examined(&program, &[]);
    says(finding(&findings, "access", "error"), &["eval"]);
    // On keys of another namespace.
    set(&format!("{rights} {heartbeats}").replace("{shop}", "{other}"));
    let (_, findings) = examined(&program, &[]);
    says(finding(&findings, "access", "error"), &["{shop}:doctor"]);
    // On no key at all: each kind of key is named once.
    set("resetkeys");
    let (_, findings) = examined(&program, &[]);
    says(
        finding(&findings, "access", "error"),
        &[
            "may not touch keys such as {shop}:doctor, touch keys such as shop:{doctor}:doctor: no request",
        ],
    );
    // The password is wrong, and not shown.
    let program = program.set("REDIS_URL", &server.url_of("limits", "wrong-one"));
    program
        .run(&["doctor"])
        .assert(3, &["give the user and the password"])
        .lacks(&["wrong-one"]);
}

#[test]
fn a_single_server_that_is_named_as_a_cluster_is_an_error_that_says_how_to_name_it() {
    let server = RedisServer::start(WELL);
    let address = format!("redis-cluster://127.0.0.1:{}", server.port());
    let program = Program::on(&server, RULES).set("REDIS_URL", &address);
    let (code, findings) = examined(&program, &[]);
    assert_eq!(code, 1);
    says(
        finding(&findings, "cluster", "error"),
        &["cluster support disabled", "a single server", "redis://"],
    );
}

#[test]
fn a_disk_is_measured_by_the_rules() {
    let server = RedisServer::start(WELL);
    let daily = Program::on(&server, &RULES.replace("60/min", "fixed_window 60/d"));
    let (_, findings) = examined(&daily, &[]);
    says(
        finding(&findings, "persistence", "warning"),
        &["1 d", "appendonly yes"],
    );
    let saves = RedisServer::start(&[WELL, &["--save", "3600 1"]].concat());
    let (_, findings) = examined(&Program::on(&saves, RULES), &[]);
    says(
        finding(&findings, "persistence", "note"),
        &["snapshots", "save"],
    );
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
    let _: String = server.ask(&["SET", "session:4711", "x"]);
    let (code, findings) = examined(&program, &[]);
    assert_eq!(code, 1);
    says(finding(&findings, "instances", "ok"), &["2 processes"]);
    says(
        finding(&findings, "quotas", "warning"),
        &["2 quotas for the rule api", "90 per 60s", "if it lasts"],
    );
    let keys: Vec<_> = findings
        .iter()
        .filter(|finding| finding["check"] == "keys")
        .collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    says(keys[0], &["different partitions, key and one"]);
    says(keys[1], &["the secret here is not that of the processes"]);
    says(finding(&findings, "neighbours", "note"), &["1 of 3 keys"]);
}

#[test]
fn a_service_is_recognised_by_its_secret() {
    let server = RedisServer::start(WELL);
    let program = Program::on(&server, RULES);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        use tollgate::{Limiter, MINUTE, Quota, Rule};
        use tollgate_redis::{Keys, RedisStore, Secret};

        let keys = Keys::hashed(Secret::from_text(SECRET).expect("a secret"));
        let store = RedisStore::builder(&*server.url(), "shop", keys)
            .connect()
            .expect("a valid address");
        let limiter = Limiter::new(store.clone(), [Rule::new("api", Quota::gcra(60, MINUTE))]);
        let _limiter = limiter.expect("a valid rule");
        // The second part of a heartbeat.
        for _ in 0..3_000 {
            if server.ask::<u64>(&["ZCARD", "{shop}:quotas"]) == 2 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    let (_, findings) = examined(&program, &[]);
    says(finding(&findings, "instances", "ok"), &["one process"]);
    says(finding(&findings, "quotas", "ok"), &["1 rules"]);
    finding(&findings, "keys", "ok");
    let (_, findings) = examined(&program.set("TOLLGATE_SECRET", &"ab".repeat(32)), &[]);
    says(
        finding(&findings, "keys", "error"),
        &["the secret here is not that"],
    );
}

#[test]
fn a_cluster_is_examined_server_by_server() {
    let cluster = RedisCluster::start();
    let program = Program::on(cluster.server(0), RULES).set("REDIS_URL", &cluster.url());
    // `forum` lies with the second of them.
    let _: String = cluster.server(1).ask(&["SET", "{forum}:session", "x"]);
    let slot: u16 = cluster.server(0).ask(&["CLUSTER", "KEYSLOT", "{shop}:"]);
    let owner = format!(
        "slot {slot}, on 127.0.0.1:{}",
        cluster.server_of(slot).port()
    );
    let (code, findings) = examined(&program, &["--partition", "one"]);
    assert_eq!(code, 1);
    says(
        finding(&findings, "cluster", "ok"),
        &["3 shards", "16384 of 16384 slots"],
    );
    says(
        finding(&findings, "cluster", "note"),
        &["3 of 3 shards have no replica"],
    );
    says(
        finding(&findings, "cluster", "warning"),
        &["cluster-require-full-coverage"],
    );
    says(
        finding(&findings, "partition", "warning"),
        &[
            "Partition::One",
            &owner,
            "one of 3 shards",
            "Partition::Key",
        ],
    );
    let versions = findings
        .iter()
        .filter(|finding| finding["check"] == "version");
    let servers: std::collections::BTreeSet<_> = versions
        .map(|finding| finding["server"].to_string())
        .collect();
    assert_eq!(servers.len(), 3);
    let access = findings
        .iter()
        .filter(|finding| finding["check"] == "access");
    assert!(access.clone().all(|finding| finding["level"] == "ok") && access.count() == 3);
    // A key that lies elsewhere is no refused write, and a server of the cluster not the wrong address.
    for check in ["write", "cluster"] {
        let is_error = |it: &&Value| it["check"] == check && it["level"] == "error";
        assert_eq!(findings.iter().find(is_error), None);
    }
    // Of each of them.
    let neighbours = |level: &str| {
        let all = findings.iter();
        all.filter(|it| it["check"] == "neighbours" && it["level"] == level)
            .count()
    };
    assert_eq!((neighbours("ok"), neighbours("note")), (2, 1));
    let (_, findings) = examined(&program, &["--partition", "key"]);
    says(
        finding(&findings, "partition", "ok"),
        &["3 shards share the work"],
    );
    // Without --partition, doctor assumes one partition for all states.
    let (_, findings) = examined(&program, &[]);
    says(
        finding(&findings, "partition", "note"),
        &["one of 3 shards", "Say --partition"],
    );
    // One of its servers, by an address of one server.
    let (_, findings) = examined(&program.set("REDIS_URL", &cluster.server(1).url()), &[]);
    says(
        finding(&findings, "cluster", "error"),
        &["redis-cluster://"],
    );
}

#[test]
fn sentinels_are_asked_for_the_master_and_counted() {
    let master = RedisServer::start(WELL);
    let sentinel = RedisServer::start_sentinel(&master);
    let place = format!("127.0.0.1:{}", sentinel.port());
    let address = format!("redis-sentinel://{place}/limits");
    let program = Program::on(&master, RULES).set("REDIS_URL", &address);
    let (_, findings) = examined(&program, &[]);
    let named = format!("1 of 1 say that 127.0.0.1:{} is the master", master.port());
    says(finding(&findings, "sentinels", "ok"), &[&named]);
    finding(&findings, "role", "ok");
    finding(&findings, "access", "ok");
    // One of two is believed as long as the other one does not answer, as by the store.
    let two = format!("redis-sentinel://{place},127.0.0.1:1/limits");
    let (_, findings) = examined(&program.set("REDIS_URL", &two), &[]);
    let warnings = format!("{findings:?}");
    for says in [
        "only 1 of 2",
        "the store believes them",
        "127.0.0.1:1 does not say",
    ] {
        assert!(warnings.contains(says), "{warnings}");
    }
    // Where both answer, half is no majority.
    let another = RedisServer::start(WELL);
    let disagrees = RedisServer::start_sentinel(&another);
    let two = format!(
        "redis-sentinel://{place},127.0.0.1:{}/limits",
        disagrees.port()
    );
    let program = Program::on(&master, RULES).set("REDIS_URL", &two);
    let (code, findings) = examined(&program, &[]);
    assert_eq!(code, 1);
    says(
        finding(&findings, "sentinels", "error"),
        &["only 1 of 2", "do not agree", "name all sentinels"],
    );
    let other = format!("redis-sentinel://{place}/others");
    let program = Program::on(&master, RULES).set("REDIS_URL", &other);
    program
        .run(&["doctor"])
        .assert(3, &["no sentinel says who the master \"others\" is"]);
}

#[test]
fn a_server_that_is_not_there_is_no_finding() {
    let program = Program::new()
        .set("REDIS_URL", "redis://127.0.0.1:1")
        .set("TOLLGATE_NAMESPACE", "shop");
    program
        .run(&["doctor"])
        .assert(3, &["127.0.0.1:1 cannot be asked", "is the server running"]);
    program
        .run(&["doctor", "--redis", "redis://127.0.0.1", "--ca", "ca.pem"])
        .assert(2, &["rediss://host"]);
    program
        .run(&["doctor", "--redis", "redis-cluster://127.0.0.1:1"])
        .assert(3, &["cannot be asked"]);
}

#[test]
fn a_cluster_that_lacks_a_slot_is_an_error() {
    let cluster = RedisCluster::start();
    let program = Program::on(cluster.server(0), RULES).set("REDIS_URL", &cluster.url());
    let _: String = cluster.server(0).ask(&["CLUSTER", "DELSLOTS", "0"]);
    let (code, findings) = examined(&program, &[]);
    assert_eq!(code, 1);
    says(
        finding(&findings, "cluster", "error"),
        &[
            "16383 of 16384 slots served",
            "are not decided",
            "redis-cli --cluster fix",
        ],
    );
    let _: String = cluster
        .server(0)
        .ask(&["ACL", "SETUSER", "default", "-cluster|slots"]);
    let (code, findings) = examined(&program, &[]);
    assert_eq!((code, findings.len()), (1, 1));
    says(
        finding(&findings, "cluster", "error"),
        &["may not be read", "+cluster|slots"],
    );
}

#[test]
fn every_key_is_counted_once() {
    let server = RedisServer::start(WELL);
    let fill =
        "for n = 1, ARGV[1] do redis.call('SET', string.format('{shop}:%022d:api:a1', n), 'x') end";
    let _: Option<String> = server.ask(&["EVAL", fill, "0", "700"]);
    let (_, findings) = examined(&Program::on(&server, RULES), &[]);
    says(
        finding(&findings, "neighbours", "ok"),
        &["all of 700 keys are of the namespace"],
    );
}
