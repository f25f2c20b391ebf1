//! Two processes of the example `shared`, over sockets.

use std::{
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
};

use crate::process::{Process, program, redis};

/// The example, on this Redis or on one of its own.
fn start(redis: Option<&str>) -> Process {
    let settings = redis.map(|redis| ("REDIS_URL", redis));
    Process::start("shared", Path::new("."), settings.as_slice())
}

#[test]
fn two_processes_on_one_redis_are_one_limit() {
    let (_redis, address) = redis();
    let processes = [start(Some(&address)), start(Some(&address))];
    // Five in any minute, whichever process decides.
    let statuses: Vec<u16> = (0..8)
        .map(|turn| processes[turn % 2].send("POST", "/login"))
        .collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
}

#[test]
fn without_a_redis_it_starts_its_own_and_ends_it() {
    let process = start(None);
    let line = process
        .output
        .lines()
        .find(|line| line.contains("started a redis-server at "))
        .expect("it says so");
    let at = line.split("redis://").nth(1).expect("an address");
    let at = at.split(',').next().expect("one part").to_owned();
    assert!(TcpStream::connect(&at).is_ok());
    assert_eq!(process.send("POST", "/login"), 200);

    process.end();
    assert!(TcpStream::connect(&at).is_err(), "{at} still listens");
}

#[test]
fn an_invalid_address_is_rejected_with_the_remedy() {
    let out = Command::new(program("shared"))
        .env("REDIS_URL", "localhost:6379")
        .output()
        .expect("it was built");
    assert!(!out.status.success());
    let output = String::from_utf8_lossy(&out.stderr);
    assert!(output.contains("redis://host:6379"), "{output}");
}

#[test]
fn a_deadline_that_is_no_number_is_rejected_with_the_remedy() {
    let out = Command::new(program("shared"))
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
    let folders = ["", "exports", "gateway", "rules"];
    let files = folders.map(|name| folder.join(name).read_dir());
    for file in files.into_iter().flat_map(|files| files.expect("a folder")) {
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
    assert!(seen >= 6, "{seen} examples with a Redis");
}
