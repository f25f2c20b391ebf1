//! The example `exports` over sockets: a process for itself, and processes on one Redis.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

use crate::process::{Answer, Process, redis};

/// A process for itself.
fn served(wait_ms: &str, per_hour: &str) -> Process {
    let settings = [("WAIT_MS", wait_ms), ("PER_HOUR", per_hour)];
    Process::start("exports", Path::new("."), &settings)
}

fn export(process: &Process, seconds: u16, key: &str) -> Answer {
    let path = format!("/export?seconds={seconds}");
    process.request("GET", &path, &format!("x-api-key: {key}\r\n"))
}

/// An export that does not end by itself while a test runs, and has begun.
fn begun(process: &Process) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(&process.address).expect("it listens");
    let head = "GET /export?seconds=1000 HTTP/1.1\r\nhost: localhost\r\nx-api-key: acme.k1\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line).expect("it answers");
    assert!(line.contains(" 200 "), "{line}");
    answer
}

#[test]
fn a_fourth_export_at_once_is_denied_and_other_tenants_are_not() {
    let process = served("0", "10");
    let _running = [begun(&process), begun(&process), begun(&process)];
    let denied = export(&process, 0, "acme.k2");
    assert_eq!(denied.status, 429);
    assert!(denied.body.contains(r#""reason":"slots""#), "{denied:?}");
    assert_eq!(export(&process, 0, "globex.k1").status, 200);
    // The denial has taken nothing of the ten an hour.
    let left = denied.header("ratelimit").expect("it says what is left");
    assert!(left.contains(r#""exports-per-hour";r=7"#), "{left}");
}

#[test]
fn a_fourth_export_waits_until_one_of_the_others_ends() {
    let process = served("60000", "10");
    let running = [begun(&process), begun(&process), begun(&process)];
    let fourth = thread::scope(|scope| {
        let fourth = scope.spawn(|| export(&process, 0, "acme.k2"));
        // A client that has gone frees its slot.
        drop(running);
        fourth.join().expect("it is answered")
    });
    assert_eq!(fourth.status, 200, "{fourth:?}");
}

#[test]
fn an_export_has_ten_lines_a_second_and_a_tenant_as_many_exports_as_its_limit() {
    let process = served("0", "2");
    let first = export(&process, 1, "acme.k1");
    assert_eq!(first.body.matches("line ").count(), 10, "{first:?}");
    assert_eq!(export(&process, 1, "acme.k1").status, 200);
    assert_eq!(export(&process, 1, "acme.k1").status, 429);
    assert_eq!(process.send("GET", "/export"), 401);
}

#[test]
fn processes_share_their_slots_and_those_of_a_killed_one_come_back() {
    let (_redis, address) = redis();
    let start = |wait| {
        let settings = [
            ("REDIS_URL", &*address),
            ("SLOT_TERM_MS", "6000"),
            ("WAIT_MS", wait),
        ];
        Process::start("exports", Path::new("."), &settings)
    };
    let (doomed, patient, hasty) = (start("0"), start("60000"), start("0"));
    let _running = [begun(&doomed), begun(&doomed), begun(&patient)];
    let export = |process: &Process| export(process, 0, "acme.k2");
    let denied = export(&hasty);
    assert_eq!(denied.status, 429);
    assert!(denied.body.contains(r#""reason":"slots""#), "{denied:?}");
    let fourth = thread::scope(|scope| {
        let fourth = scope.spawn(|| export(&patient));
        // As `kill -9` does; it says nothing to anybody.
        drop(doomed);
        fourth.join().expect("it is answered")
    });
    assert_eq!(fourth.status, 200, "{fourth:?}");
    // Both are back, and the third runs still.
    let _again = [begun(&patient), begun(&patient)];
    assert_eq!(export(&hasty).status, 429);
}

/// A service whose jobs wait in `queue`.
fn with_jobs(address: &str, queue: &Path) -> Process {
    let queue = queue.to_str().expect("a path in Unicode");
    Process::start(
        "exports",
        Path::new("."),
        &[("REDIS_URL", address), ("QUEUE", queue)],
    )
}

/// What the next answer says is left of the rows, and what the answer is.
fn jobs(process: &Process, method: &str, rows: u64) -> (u16, String, String) {
    let path = format!("/jobs?rows={rows}");
    let answer = process.request(method, &path, "x-api-key: acme.k1\r\n");
    let limits = answer.header("ratelimit").unwrap_or_default();
    let left = limits
        .split("\"rows-per-day\";r=")
        .nth(1)
        .unwrap_or_default();
    let left = left.split(';').next().unwrap_or_default();
    (answer.status, left.to_owned(), answer.body)
}

struct Worker(Child, BufReader<ChildStdout>);

impl Worker {
    fn start(address: &str, queue: &Path) -> Self {
        let worker = Command::new(crate::process::program("exports"))
            .arg("worker")
            .envs([("REDIS_URL", address), ("REDIS_DEADLINE_MS", "30000")])
            .env("QUEUE", queue)
            .stdout(Stdio::piped())
            .spawn();
        let mut worker = worker.expect("it starts");
        let out = worker.stdout.take().expect("it is piped");
        Self(worker, BufReader::new(out))
    }

    /// The next line that it prints and that begins so.
    fn line(&mut self, begin: &str) -> String {
        let mut lines = (&mut self.1).lines().map_while(Result::ok);
        lines.find(|line| line.starts_with(begin)).expect("a line")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_is_settled_once_whoever_is_killed() {
    let ((_redis, address), queue) = (redis(), tempfile::tempdir().expect("a folder"));
    let queue = queue.path();
    let service = with_jobs(&address, queue);
    assert_eq!(jobs(&service, "POST", 4_000).0, 202);
    assert_eq!(jobs(&service, "POST", 4_000).0, 202);
    // Slots and rows are reserved.
    assert_eq!(jobs(&service, "POST", 1).0, 429);
    drop(service);
    let mut doomed = Worker::start(&address, queue);
    doomed.line("working");
    drop(doomed);
    let service = with_jobs(&address, queue);
    let mut worker = Worker::start(&address, queue);
    for _ in 0..2 {
        assert_eq!(worker.line("exported"), "exported 1000 rows");
    }
    let wait = || jobs(&service, "GET", 0).2 != "0 jobs\n";
    while wait() {
        thread::yield_now();
    }
    assert_eq!(jobs(&service, "GET", 0).1, "8000");
}

#[test]
fn the_page_shows_what_the_service_and_the_worker_answer() {
    let ((_redis, address), queue) = (redis(), tempfile::tempdir().expect("a folder"));
    let service = with_jobs(&address, queue.path());
    let page = include_str!("../../README.md");
    let (_, page) = page.split_once("\n## exports\n").expect("its section");
    let (_, page) = page.split_once("```console\n").expect("its commands");
    let (page, _) = page.split_once("```").expect("their end");
    let mut worker = None;
    for command in page.split("$ ").skip(1) {
        let (command, shown) = command.split_once('\n').expect("what it prints");
        let printed = if command.starts_with("curl") {
            let command = command.replace("127.0.0.1:3000", &service.address);
            let output = Command::new("sh").args(["-c", &command]).output();
            String::from_utf8(output.expect("a shell").stdout).expect("text")
        } else if command.ends_with("worker") {
            let worker = worker.insert(Worker::start(&address, queue.path()));
            format!("{}\n", worker.line("exported"))
        } else {
            continue;
        };
        assert_eq!(printed, shown, "{command}");
    }
    assert!(worker.is_some(), "the page starts a worker");
}
