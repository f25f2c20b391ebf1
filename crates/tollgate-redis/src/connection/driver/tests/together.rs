//! Calls of the script that decides, which travel together.

use super::*;
use crate::connection::event::{CallEvent, Resent};

impl Bench {
    /// A call of one check, on this key.
    fn check(&self, key: &str) -> Call {
        self.check_at("", 0, key)
    }

    /// The same for a rule with this bit.
    fn check_of(&self, rule: u32, key: &str) -> Call {
        let args = ["", "abc\u{1}\0"].map(str::as_bytes).into_iter();
        let request = Request::checks(&self.script, 0, [key.as_bytes()].into_iter(), args);
        self.send(request.of_rules(1 << rule))
    }

    fn check_at(&self, time: &str, slot: u16, key: &str) -> Call {
        let args = [time, "abc\u{1}\0"].map(str::as_bytes).into_iter();
        let keys = [key.as_bytes()].into_iter();
        self.send(Request::checks(&self.script, slot, keys, args))
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

/// The arguments of the first command, behind the hash.
fn arguments(text: &str) -> Vec<&str> {
    let lines = text.split("\r\n").skip(1).step_by(2);
    let arguments = text.split("\r\n").skip(2).step_by(2);
    lines
        .zip(arguments)
        .take_while(|(length, _)| length.starts_with('$'))
        .map(|(_, argument)| argument)
        .skip(2)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn checks_that_wait_become_one_command_and_each_gets_its_own_reply() {
    let mut bench = by_default(65_536);
    let calls = [bench.check("a"), bench.check("b"), bench.check("c")];
    let sent = bench.received().await;
    assert_eq!(commands(&sent), ["EVALSHA"]);
    assert!(sent.starts_with("*10\r\n"));
    let checks = ["abc\u{1}\0", "abc\u{2}\0", "abc\u{3}\0"];
    assert_eq!(
        arguments(&sent),
        [&["3", "a", "b", "c", ""], &checks[..]].concat()
    );
    bench.answers(&answer(&[1, 2, 3])).await;
    for (call, number) in calls.into_iter().zip(1..) {
        assert_eq!(call.await.unwrap(), reply_of(number));
    }
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
async fn an_error_answers_each_call_and_counts_for_each() {
    let mut bench = Bench::new(
        NodeOptions {
            breaker: BreakerOptions {
                failures: 1,
                busy: 5,
                ..BreakerOptions::default()
            },
            ..NodeOptions::default()
        },
        65_536,
    );
    // Four are answered, and four fail: half of them, which they are only if each counts.
    let calls: Vec<_> = (0..4).map(|_| bench.check("a")).collect();
    bench.received().await;
    bench.answers(&answer(&[1, 2, 3, 4])).await;
    for call in calls {
        assert!(call.await.is_ok());
    }
    let calls: Vec<_> = (0..4).map(|_| bench.check("a")).collect();
    bench.received().await;
    bench.answers("-LOADING Redis is loading\r\n").await;
    for call in calls {
        assert_eq!(kind(call.await), CallErrorKind::Unavailable);
    }
    assert_eq!(bench.breaker.state(), BreakerState::Open);
}

/// Three calls; the server refuses the one of rule 2. `sent` are the arguments of the first command: if that is
/// known to be refused, without the one.
async fn refuse(bench: &mut Bench, sent: &str, is_known: bool) {
    let calls = [
        bench.check_of(1, "a"),
        bench.check_of(2, "b"),
        bench.check_of(3, "c"),
    ];
    let received = bench.received().await;
    assert_eq!(arguments(&received), sent.split(' ').collect::<Vec<_>>());
    let refused = "-NOPERM No permissions to access a key\r\n";
    if !is_known {
        // None of them has run: servers look at the keys first.
        bench.answers(refused).await;
        assert_eq!(commands(&bench.received().await), ["EVALSHA"; 3]);
        let each = [answer(&[1]), refused.to_owned(), answer(&[3])];
        bench.answers(&each.concat()).await;
    } else {
        let alone = received.rsplit_once("EVALSHA").unwrap().1;
        assert!(alone.contains("\r\nb\r\n") && commands(&received).len() == 2);
        bench.answers(&(answer(&[1, 3]) + refused)).await;
    }
    let [a, b, c] = calls;
    assert_eq!(a.await.unwrap(), reply_of(1));
    assert_eq!(kind(b.await), CallErrorKind::Misconfigured);
    assert_eq!(c.await.unwrap(), reply_of(3));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_user_may_not_make_takes_no_other_with_it_and_then_goes_alone() {
    let all = "3 a b c  abc\u{1}\0 abc\u{2}\0 abc\u{3}\0";
    let others = "2 a c  abc\u{1}\0 abc\u{2}\0";
    let mut bench = by_default(65_536);
    refuse(&mut bench, all, false).await;
    // Only the rule that was refused goes alone from now on.
    for _ in 0..20 {
        refuse(&mut bench, others, true).await;
    }
    // After a while somebody may have changed the rights.
    tokio::time::sleep(Duration::from_secs(11)).await;
    refuse(&mut bench, all, false).await;
    assert_eq!(bench.breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn while_a_hash_slot_moves_each_call_is_tried_alone_and_later_ones_go_alone_at_once() {
    let mut bench = by_default(65_536);
    let both = |bench: &Bench| ["there", "missing"].map(|key| bench.check_of(5, key));
    let [there, missing] = both(&bench);
    bench.received().await;
    bench.answers("-TRYAGAIN Multiple keys\r\n").await;
    assert_eq!(commands(&bench.received().await), ["EVALSHA"; 2]);
    let text = format!("{}-TRYAGAIN Multiple keys\r\n", answer(&[1]));
    bench.answers(&text).await;
    assert_eq!(there.await.unwrap(), reply_of(1));
    assert_eq!(kind(missing.await), CallErrorKind::TryAgain);
    let _later = both(&bench);
    assert_eq!(commands(&bench.received().await), ["EVALSHA"; 2]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_length_is_nobodys() {
    let mut bench = by_default(65_536);
    let calls = [bench.check("a"), bench.check("b")];
    bench.received().await;
    bench.answers(&answer(&[1, 2, 3])).await;
    for call in calls {
        assert_eq!(kind(call.await), CallErrorKind::Unknown);
    }
    let next = bench.check("next");
    bench.received().await;
    bench.answers(&answer(&[1])).await;
    next.await.unwrap();
}

/// A call of a log with this limit.
fn log(bench: &Bench, key: &str, limit: f64) -> Call {
    let mut check = vec![0_u8; 34];
    check[3..5].copy_from_slice(&1_u16.to_le_bytes());
    check[13] = 20;
    check[22..30].copy_from_slice(&limit.to_le_bytes());
    let args = [&b""[..], &check].into_iter();
    let keys = [key.as_bytes()].into_iter();
    bench.send(Request::checks(&bench.script, 0, keys, args))
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
        calls: Some(Arc::new(move |event| sink.lock().unwrap().push(event))),
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
            CallEvent::Queued(ms(0)),
            CallEvent::RoundTrip(ms(7)),
            CallEvent::Queued(ms(7)),
            CallEvent::RoundTrip(ms(3)),
            CallEvent::Resent(Resent::WithScript),
            CallEvent::RoundTrip(ms(2)),
        ]
    );
}
