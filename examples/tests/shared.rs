//! Two processes of the example `shared`, over sockets.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tollgate_examples::redis_server::RedisServer;

/// A process of the example on a port of its own, killed on drop.
struct Process {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    output: String,
    address: String,
}

impl Process {
    /// Starts it, on this Redis or on one of its own, and waits until it listens.
    fn start(redis: Option<&str>) -> Self {
        let program = program();
        let mut command = Command::new(&program);
        command.env("PORT", "0").env_remove("REDIS_URL");
        // A machine that runs all tests is busy, and these are about what Redis decides.
        command.env("REDIS_DEADLINE_MS", "30000");
        if let Some(redis) = redis {
            command.env("REDIS_URL", redis);
        }
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{} does not start ({error}): `cargo build -p tollgate-examples --examples` makes it",
                    program.display()
                )
            });
        let mut process = Self {
            out: BufReader::new(child.stdout.take().expect("it is piped")),
            child,
            output: String::new(),
            address: String::new(),
        };
        while process.address.is_empty() {
            let start = process.output.len();
            let read = process.out.read_line(&mut process.output).expect("text");
            assert!(read > 0, "it ended before it listened: {}", process.output);
            let line = process.output[start..].trim_end();
            if let Some(address) = line.strip_prefix("listening on http://") {
                process.address = address.to_owned();
            }
        }
        process
    }

    /// The status of the answer to a request without a body.
    fn send(&self, method: &str, path: &str) -> u16 {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let status = answer.split(' ').nth(1).and_then(|text| text.parse().ok());
        status.unwrap_or_else(|| panic!("no status in {answer:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where cargo puts the example: next to the folder of this test.
fn program() -> PathBuf {
    let test = env::current_exe().expect("a test is a program");
    let profile = test.parent().and_then(|deps| deps.parent());
    let examples = profile.expect("target/debug/deps").join("examples");
    examples.join(format!("shared{}", env::consts::EXE_SUFFIX))
}

/// A Redis that answers.
fn redis() -> (RedisServer, String) {
    let server = RedisServer::start().expect("these tests start a redis-server");
    let address = server.url();
    (server, address)
}

#[test]
fn two_processes_on_one_redis_are_one_limit() {
    let (_redis, address) = redis();
    let processes = [
        Process::start(Some(&address)),
        Process::start(Some(&address)),
    ];
    // Five in any minute, whichever process decides.
    let statuses: Vec<u16> = (0..8)
        .map(|turn| processes[turn % 2].send("POST", "/login"))
        .collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
}

#[test]
fn a_process_that_starts_later_sees_the_usage() {
    let (_redis, address) = redis();
    for _ in 0..5 {
        // Each is killed after its request.
        assert_eq!(Process::start(Some(&address)).send("POST", "/login"), 200);
    }
    assert_eq!(Process::start(Some(&address)).send("POST", "/login"), 429);
}

#[test]
fn without_a_redis_it_starts_its_own_and_ends_it() {
    let mut process = Process::start(None);
    let line = process
        .output
        .lines()
        .find(|line| line.contains("started a redis-server at "))
        .expect("it says so");
    let at = line.split("redis://").nth(1).expect("an address");
    let at = at.split(',').next().expect("one part").to_owned();
    assert!(TcpStream::connect(&at).is_ok());
    assert_eq!(process.send("POST", "/login"), 200);

    let pid = process.child.id().to_string();
    let status = Command::new("kill").arg(&pid).status();
    assert!(status.is_ok_and(|status| status.success()));
    // It closes its output last.
    process
        .out
        .read_to_string(&mut process.output)
        .expect("text");
    assert!(process.child.wait().expect("it was started").success());
    assert!(TcpStream::connect(&at).is_err(), "{at} still listens");
}

#[test]
fn an_invalid_address_is_rejected_with_the_remedy() {
    let out = Command::new(program())
        .env("REDIS_URL", "localhost:6379")
        .output()
        .expect("it was built");
    assert!(!out.status.success());
    let output = String::from_utf8_lossy(&out.stderr);
    assert!(output.contains("redis://host:6379"), "{output}");
}

#[test]
fn a_deadline_that_is_no_number_is_rejected_with_the_remedy() {
    let out = Command::new(program())
        .env("REDIS_URL", "redis://localhost")
        .env("REDIS_DEADLINE_MS", "2s")
        .output()
        .expect("it was built");
    assert!(!out.status.success());
    let output = String::from_utf8_lossy(&out.stderr);
    assert!(
        output.contains("REDIS_DEADLINE_MS") && output.contains("50"),
        "{output}"
    );
}

/// Services are copied from examples, and a generous deadline with them: then each request waits for it when Redis stalls.
#[test]
fn no_example_sets_a_deadline_of_its_own() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for file in folder.read_dir().expect("a folder") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a text");
        seen += usize::from(text.contains("RedisStore::builder("));
        for (before, set) in text
            .match_indices(".deadline(")
            .map(|(at, _)| text.split_at(at))
        {
            let is_asked_for = before.contains("env::var(\"REDIS_DEADLINE_MS\")");
            assert!(is_asked_for, "{}: {:.60}", path.display(), set);
        }
    }
    assert!(seen >= 3, "{seen} examples with a Redis");
}
