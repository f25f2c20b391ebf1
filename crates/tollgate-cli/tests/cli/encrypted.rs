//! Redis over encrypted connections.

use tollgate_test_servers::{blocking_server::free_port, certificate::Certificate};

use crate::support::{Program, RedisServer, words};

const RULES: &str =
    "version = 1\n[[rules]]\nname = \"api\"\nlimit = \"60/min\"\nby = \"header:x-api-key\"\n";

/// A server that encrypts, and its certificate.
struct Encrypted {
    server: RedisServer,
    port: u16,
    certificate: Certificate,
}

impl Encrypted {
    fn start() -> Self {
        let certificate = Certificate::of(&["127.0.0.1"]);
        let port = free_port();
        let args = certificate.args(port) + " --maxmemory 256mb";
        Self {
            server: RedisServer::start(&args.split(' ').collect::<Vec<_>>()),
            port,
            certificate,
        }
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }
}

#[test]
fn each_command_that_asks_redis_does_so_encrypted() {
    let redis = Encrypted::start();
    let program = Program::on(&redis.server, RULES)
        .set("REDIS_URL", &redis.url())
        .set(
            "TOLLGATE_CA",
            &redis.certificate.path().display().to_string(),
        );
    // Without encryption nothing reaches it: the other port is closed.
    let _: String = redis.server.ask(&["CONFIG", "SET", "port", "0"]);
    let pushed = words("rules push limits.toml --by alice --because 'a test'");
    program.run(&pushed).assert(0, &["revision 1"]);
    program.run(&["rules", "history"]).assert(0, &["alice"]);
    let key = ["key", "check", "-H", "x-api-key: acme"];
    program.run(&key).assert(0, &["api", "59"]);
    let (_, found) = program.json(&["doctor"]);
    let access = found["findings"].as_array().expect("findings").iter();
    let access = access
        .clone()
        .find(|it| it["check"] == "access")
        .expect("a finding");
    assert_eq!(access["level"], "ok");
}

#[test]
fn a_server_that_no_authority_vouches_for_is_not_spoken_to_and_the_remedy_is_named() {
    let redis = Encrypted::start();
    let other = Certificate::of(&["127.0.0.1"]);
    let program = Program::on(&redis.server, RULES)
        .set("REDIS_URL", &redis.url())
        .file("other.pem", &other.pem)
        .file("no.pem", "no certificate\n");
    for command in [&["doctor"][..], &["key", "status", "-H", "x-api-key: acme"]] {
        let ran = program.run(&[command, &["--ca", "other.pem"]].concat());
        ran.assert(3, &["certificate"]);
    }
    for (file, words) in [
        ("no.pem", "-----BEGIN CERTIFICATE-----"),
        ("nowhere.pem", "No such file"),
    ] {
        for address in [&*redis.url(), "rediss-cluster://127.0.0.1:1,127.0.0.1:2"] {
            let ran = program.run(&["doctor", "--ca", file, "--redis", address]);
            ran.assert(2, &[file, words]);
        }
    }
    for scheme in ["redis", "redis-cluster"] {
        let clear = redis.url().replace("rediss", scheme);
        let ran = program.run(&["doctor", "--redis", &clear]);
        ran.assert(3, &["begins with rediss://"]);
    }
    // At the port that does not encrypt.
    let clear = redis.server.url().replace("redis://", "rediss://");
    let program = program.set("REDIS_URL", &clear);
    let ran = program.run(&["doctor", "--ca", "other.pem"]);
    ran.assert(3, &["cannot be asked", "does it encrypt at this port?"]);
    let ran = program.run(&words("key status -H 'x-api-key: acme' --ca other.pem"));
    ran.assert(3, &["not ready within", "begins with redis://"]);
}
