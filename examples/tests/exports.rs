//! The service of the example `exports`, over sockets; and processes of it on one Redis.

mod process;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::Path,
    thread,
    time::Duration,
};

use process::{Process, redis};
use tollgate::MemoryStore;
use tollgate_examples::exports::{Settings, app};
use tollgate_tests::server::{Connection, Server, head};

async fn served(wait: Duration, per_hour: u64) -> Server {
    let settings = Settings { wait, per_hour };
    Server::start(app(MemoryStore::new(), settings).expect("valid rules")).await
}

/// An export that does not end by itself while a test runs, and has begun.
async fn begun(server: &Server) -> Connection {
    let mut connection = server.connect().await;
    let path = "/export?seconds=1000";
    connection
        .write(&head("GET", path, &[("x-api-key", "acme.k1")]))
        .await;
    let answer = connection.answer_head().await;
    assert_eq!(answer.status, 200);
    connection
}

#[tokio::test]
async fn a_fourth_export_at_once_is_denied_and_other_tenants_are_not() {
    let server = served(Duration::ZERO, 10).await;
    let running = [
        begun(&server).await,
        begun(&server).await,
        begun(&server).await,
    ];
    let send = async |key| {
        server
            .send("GET", "/export?seconds=0", &[("x-api-key", key)])
            .await
    };
    let denied = send("acme.k2").await;
    assert_eq!(denied.status, 429);
    assert!(denied.body.contains(r#""reason":"#), "{}", denied.body);
    assert_eq!(send("globex.k1").await.status, 200);
    // The denial has taken nothing of the ten an hour.
    assert!(
        denied
            .list("ratelimit")
            .contains(r#""exports-per-hour";r=7"#),
        "{denied:?}"
    );
    drop(running);
}

#[tokio::test]
async fn a_fourth_export_waits_until_one_of_the_others_ends() {
    let server = served(Duration::from_secs(20), 10).await;
    let running = [
        begun(&server).await,
        begun(&server).await,
        begun(&server).await,
    ];
    let (fourth, ()) = tokio::join!(
        server.send("GET", "/export?seconds=0", &[("x-api-key", "acme.k2")]),
        async {
            tokio::task::yield_now().await;
            // A client that has gone frees its slot.
            drop(running);
        }
    );
    assert_eq!(fourth.status, 200);
}

#[tokio::test]
async fn an_export_has_ten_lines_a_second_and_a_tenant_ten_an_hour() {
    let server = served(Duration::ZERO, 2).await;
    let send = async || {
        server
            .send("GET", "/export?seconds=1", &[("x-api-key", "acme.k1")])
            .await
    };
    let first = send().await;
    assert_eq!(first.body.matches("line ").count(), 10);
    assert_eq!(send().await.status, 200);
    assert_eq!(send().await.status, 429);
    assert_eq!(server.get("/export").await.status, 401);
}

/// An export of a process that does not end by itself while a test runs, and has begun.
fn begun_at(process: &Process) -> BufReader<TcpStream> {
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
    let _running = [begun_at(&doomed), begun_at(&doomed), begun_at(&patient)];
    let export =
        |process: &Process| process.request("GET", "/export?seconds=0", "x-api-key: acme.k2\r\n");
    let (status, body) = export(&hasty);
    assert_eq!(status, 429);
    assert!(body.contains(r#""reason":"slots""#), "{body}");
    let (fourth, ()) = thread::scope(|scope| {
        let fourth = scope.spawn(|| export(&patient));
        // As `kill -9` does; it says nothing to anybody.
        drop(doomed);
        (fourth.join().expect("it is answered"), ())
    });
    assert_eq!(fourth.0, 200, "{}", fourth.1);
    // Both are back, and the third runs still.
    let _again = [begun_at(&hasty), begun_at(&patient)];
    assert_eq!(export(&hasty).0, 429);
}
