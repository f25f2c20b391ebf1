//! A driver in front of a server that the test plays, on a paused clock.

mod pieces;
mod together;

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::JoinHandle,
    time::{Instant, advance},
};

use crate::connection::{
    breaker::BreakerState,
    command::{Command, Script},
    driver::Driver,
    error::{CallError, CallErrorKind, ConnectError, ConnectErrorKind},
    node::{AnswerFuture, NodeState},
    options::NodeOptions,
    resp::Value,
};

static SCRIPT: Script = Script::new("return 1");

struct Bench {
    server: DuplexStream,
    shared: Arc<NodeState>,
    driver: JoinHandle<ConnectError>,
}

impl Bench {
    fn new(options: NodeOptions, buffer: usize) -> Self {
        let (client, server) = duplex(buffer);
        let shared = NodeState::new(options);
        let driver = Driver::new(Box::new(client), Arc::clone(&shared));
        Self {
            server,
            shared,
            driver: tokio::spawn(driver),
        }
    }

    fn call(&self, key: &str) -> AnswerFuture {
        self.send(Command::new(&SCRIPT, &[key], &[""; 0]))
    }

    fn send(&self, command: Command) -> AnswerFuture {
        let deadline = Instant::now() + self.shared.options.deadline;
        self.shared.queue.push(Arc::new(command), deadline, false)
    }

    /// What the server receives in one go.
    async fn received(&mut self) -> String {
        let mut bytes = vec![0; 65_536];
        let length = self.server.read(&mut bytes).await.unwrap();
        bytes.truncate(length);
        // Checks are bytes.
        String::from_utf8_lossy(&bytes).into_owned()
    }

    async fn answers(&mut self, text: &str) {
        self.server.write_all(text.as_bytes()).await.unwrap();
    }

    /// The driver has ended the connection, for this reason.
    async fn is_lost(&mut self, why: &str) {
        let lost = (&mut self.driver).await.expect("it has not panicked");
        assert_eq!(lost.kind(), ConnectErrorKind::Server);
        assert!(lost.to_string().contains(why), "{lost}");
    }

    /// Lets everything run that can run without time passing.
    async fn settle(&self) {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }
}

fn by_default(buffer: usize) -> Bench {
    Bench::new(NodeOptions::default(), buffer)
}

fn kind(answer: Result<Value, CallError>) -> CallErrorKind {
    answer.unwrap_err().kind()
}

fn commands(text: &str) -> Vec<&str> {
    text.split_inclusive("*")
        .filter_map(|part| part.split("\r\n").nth(2))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_dropped_after_half_a_second_although_no_call_waits_any_more() {
    let mut bench = by_default(65_536);
    let began = Instant::now();
    let call = bench.call("a");
    bench.received().await;
    assert_eq!(kind(call.await), CallErrorKind::NoAnswer);
    bench.is_lost("silent for too long").await;
    assert_eq!(began.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_late_is_kept_and_its_answers_count_for_nothing() {
    let mut bench = by_default(65_536);
    for _ in 0..20 {
        let call = bench.call("a");
        bench.received().await;
        tokio::time::sleep(Duration::from_millis(80)).await;
        bench.answers(":1\r\n").await;
        assert_eq!(kind(call.await), CallErrorKind::NoAnswer);
        bench.settle().await;
    }
    assert!(!bench.driver.is_finished());
    assert_eq!(bench.shared.breaker.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_could_not_be_written_before_a_deadline_end_the_connection() {
    let mut bench = by_default(100);
    let calls = [bench.call("a"), bench.call("b"), bench.call("c")];
    let began = Instant::now();
    let kinds = {
        let [a, b, c] = calls;
        [kind(a.await), kind(b.await), kind(c.await)]
    };
    assert_eq!(began.elapsed(), bench.shared.options.deadline);
    // The first has left, the second in part, the third not at all.
    assert_eq!(
        kinds,
        [
            CallErrorKind::NoAnswer,
            CallErrorKind::NoAnswer,
            CallErrorKind::Unavailable
        ]
    );
    bench.is_lost("silent for too long").await;
}

#[tokio::test(start_paused = true)]
async fn a_script_that_stays_unknown_is_an_error_within_the_same_deadline() {
    let mut bench = by_default(65_536);
    let call = bench.call("a");
    for _ in 0..3 {
        bench.received().await;
        bench.answers("-NOSCRIPT No matching script.\r\n").await;
    }
    assert_eq!(kind(call.await), CallErrorKind::Unavailable);
    let began = Instant::now();
    let slow = bench.call("b");
    bench.received().await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    bench.answers("-NOSCRIPT No matching script.\r\n").await;
    assert_eq!(commands(&bench.received().await), ["EVAL"]);
    assert_eq!(kind(slow.await), CallErrorKind::NoAnswer);
    assert_eq!(began.elapsed(), bench.shared.options.deadline);
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_left_after_every_answer_was_handed_out() {
    let mut bench = by_default(65_536);
    let calls = [bench.call("a"), bench.call("b")];
    bench.received().await;
    bench
        .answers("-READONLY You can't write against a read only replica.\r\n:2\r\n")
        .await;
    let [a, b] = calls;
    assert_eq!(kind(a.await), CallErrorKind::Unavailable);
    assert_eq!(b.await.unwrap(), Value::Integer(2));
    bench.is_lost("answered READONLY").await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_expire_while_the_process_stands_still_are_not_sent_and_open_the_breaker() {
    let mut bench = by_default(65_536);
    for _ in 0..5 {
        assert_eq!(bench.shared.breaker.state(), BreakerState::Closed);
        let late = bench.call("late");
        advance(bench.shared.options.deadline).await;
        assert_eq!(kind(late.await), CallErrorKind::NotSent);
        tokio::time::sleep(Duration::from_millis(125)).await;
    }
    assert_eq!(bench.shared.breaker.state(), BreakerState::Open);
    // One that comes in time goes alone.
    let late = bench.call("late");
    advance(bench.shared.options.deadline).await;
    let next = bench.call("next");
    let sent = bench.received().await;
    assert!(sent.contains("next") && !sent.contains("late"), "{sent}");
    bench.answers(":1\r\n").await;
    next.await.unwrap();
    assert_eq!(kind(late.await), CallErrorKind::NotSent);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_answer_end_the_connection() {
    let mut bench = by_default(65_536);
    let call = bench.call("a");
    bench.received().await;
    bench.answers("HTTP/1.1 400 Bad Command\r\n").await;
    assert_eq!(kind(call.await), CallErrorKind::NoAnswer);
    bench.is_lost("no known mark").await;
}

#[tokio::test(start_paused = true)]
async fn the_next_connection_sends_nothing_of_the_one_that_was_lost() {
    let mut bench = by_default(65_536);
    // Its driver had no time to take it from the queue.
    let waiting = bench.call("a");
    bench.driver.abort();
    let aborted = (&mut bench.driver).await;
    assert!(aborted.is_err_and(|error| error.is_cancelled()));
    let answer = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert_eq!(answer.map(kind), Ok(CallErrorKind::Unavailable));
    assert!(bench.call("b").is_refused());

    let (client, server) = duplex(65_536);
    let driver = Driver::new(Box::new(client), Arc::clone(&bench.shared));
    bench.shared.queue.set_closed(None);
    (bench.server, bench.driver) = (server, tokio::spawn(driver));
    let _call = bench.call("c");
    assert_eq!(commands(&bench.received().await).len(), 1);
}
