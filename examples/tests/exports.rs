//! The example `exports` over sockets: a process for itself, and processes on one Redis.

mod process;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::Path,
    thread,
};

use process::{Answer, Process, redis};

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
            ("SLOT_TERM_MS", "1500"),
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
    let (fourth, ()) = thread::scope(|scope| {
        let fourth = scope.spawn(|| export(&patient));
        // As `kill -9` does; it says nothing to anybody.
        drop(doomed);
        (fourth.join().expect("it is answered"), ())
    });
    assert_eq!(fourth.status, 200, "{fourth:?}");
    // Both are back, and the third runs still.
    let _again = [begun(&hasty), begun(&patient)];
    assert_eq!(export(&hasty).status, 429);
}
