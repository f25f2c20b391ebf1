//! Calls of the script that decides, which travel together.

use super::*;
use crate::connection::options::{NodeEvent, Resent};

impl Bench {
    /// A call of one check, on this key.
    fn check(&self, key: &str) -> AnswerFuture {
        self.check_at("", 0, key)
    }

    fn check_at(&self, time: &str, hash_slot: u16, key: &str) -> AnswerFuture {
        let command = Command::by_hand(&SCRIPT, &[key], &[time, "abc\u{1}\0"], &[3]);
        self.send(command.in_hash_slot(hash_slot))
    }
}

/// What the script says to these checks.
fn answer(numbers: &[i64]) -> String {
    let mut text = format!("*{}\r\n:7\r\n", 1 + 3 * numbers.len());
    for number in numbers {
        text += &format!(":{number}\r\n:0\r\n:0\r\n");
    }
    text
}

fn reply_of(number: i64) -> Value {
    Value::Integers([7, number, 0, 0].into())
}

#[tokio::test(start_paused = true)]
async fn no_more_checks_travel_together_than_may() {
    let options = NodeOptions {
        together: 2,
        ..NodeOptions::default()
    };
    let mut bench = Bench::new(options, 65_536);
    let calls: Vec<_> = ["a", "b", "c", "d", "e"].map(|key| bench.check(key)).into();
    assert_eq!(commands(&bench.received().await).len(), 3);
    let answers = [answer(&[1, 2]), answer(&[3, 4]), answer(&[5])];
    bench.answers(&answers.concat()).await;
    for (call, number) in calls.into_iter().zip(1..) {
        assert_eq!(call.await.unwrap(), reply_of(number));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_different_times_or_slots_do_not_travel_together() {
    let mut bench = by_default(65_536);
    let _calls = [
        bench.check_at("now", 1, "a"),
        bench.check_at("now", 2, "b"),
        bench.check_at("now", 1, "c"),
        bench.check_at("then", 2, "d"),
        bench.call("e"),
    ];
    let sent = bench.received().await;
    let commands: Vec<_> = sent.split_inclusive("EVALSHA").skip(1).collect();
    let keys = |command: &str| -> Vec<String> {
        let lines: Vec<_> = command.split("\r\n").collect();
        let count: usize = lines[4].parse().unwrap();
        lines[6..]
            .iter()
            .step_by(2)
            .take(count)
            .map(|key| (*key).to_owned())
            .collect()
    };
    let keys: Vec<_> = commands.into_iter().map(keys).collect();
    assert_eq!(keys, [vec!["e"], vec!["a", "c"], vec!["b"], vec!["d"]]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_length_is_nobodys() {
    let mut bench = by_default(65_536);
    let calls = [bench.check("a"), bench.check("b")];
    bench.received().await;
    bench.answers(&answer(&[1, 2, 3])).await;
    for call in calls {
        assert_eq!(kind(call.await), CallErrorKind::NoAnswer);
    }
    let next = bench.check("next");
    bench.received().await;
    bench.answers(&answer(&[1])).await;
    next.await.unwrap();
}

/// A call of a log with this limit.
fn log(bench: &Bench, key: &str, limit: f64) -> AnswerFuture {
    let mut check = vec![0_u8; 34];
    check[3..5].copy_from_slice(&1_u16.to_le_bytes());
    check[13] = 20;
    check[22..30].copy_from_slice(&limit.to_le_bytes());
    let args = [&b""[..], &check];
    bench.send(Command::by_hand(&SCRIPT, &[key], &args, &[3]))
}

#[tokio::test(start_paused = true)]
async fn a_command_is_bounded_by_the_time_that_it_keeps_the_server() {
    for (limit, together) in [(60.0, 14), (500.0, 3), (1_000.0, 1), (1e300, 1)] {
        let mut bench = by_default(65_536);
        let _calls: Vec<_> = (0..28).map(|_| log(&bench, "k", limit)).collect();
        let mut bytes = vec![0; 65_536];
        // The first command goes alone to a server that has nothing to do.
        let length = bench.server.read(&mut bytes).await.unwrap();
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let keys = text.split("\r\n").nth(6).map(str::to_owned);
        assert_eq!(keys, Some(together.to_string()), "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_round_trip_is_measured_apart_from_the_wait_before_it() {
    let events = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let options = NodeOptions {
        events: Arc::new(move |_, event| sink.lock().unwrap().push(event.clone())),
        unanswered: 1,
        ..NodeOptions::default()
    };
    let ms = Duration::from_millis;
    let mut bench = Bench::new(options, 65_536);
    let first = bench.check("a");
    bench.received().await;
    let second = bench.check("b");
    tokio::time::sleep(ms(7)).await;
    bench.answers(&answer(&[1])).await;
    assert!(first.await.is_ok());
    bench.received().await;
    tokio::time::sleep(ms(3)).await;
    bench.answers("-NOSCRIPT No matching script.\r\n").await;
    bench.received().await;
    tokio::time::sleep(ms(2)).await;
    bench.answers(&answer(&[2])).await;
    assert!(second.await.is_ok());
    assert_eq!(
        *events.lock().unwrap(),
        [
            NodeEvent::Queued(ms(0)),
            NodeEvent::RoundTrip(ms(7)),
            NodeEvent::Queued(ms(7)),
            NodeEvent::RoundTrip(ms(3)),
            NodeEvent::Resent(Resent::WithScript),
            NodeEvent::RoundTrip(ms(2)),
        ]
    );
}
