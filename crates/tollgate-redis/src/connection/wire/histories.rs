//! Random servers and callers on a paused clock: what a call is told is what became of it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use fastrand::Rng;
use redis::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::connection::{
    breaker::{Breaker, BreakerSettings},
    call::{Call, Waiting},
    error::CallErrorKind,
    event::EventSink,
    options::NodeOptions,
    queue::Queue,
    script::Script,
    wire::Wire,
};

const CALLS: u64 = 60;

/// How often each call ran, by the number that is its key.
type Runs = HashMap<u64, u32>;

/// Runs some calls, refuses some, knows a script or does not, dawdles, and at last hangs up.
async fn serve(mut stream: DuplexStream, seed: u64) -> Runs {
    let mut rng = Rng::with_seed(seed);
    let mut runs = Runs::new();
    let mut input = Vec::new();
    let hangs_up_after = rng.usize(1..200);
    for _ in 0..hangs_up_after {
        let mut piece = vec![0; rng.usize(1..600)];
        match stream.read(&mut piece).await {
            Ok(length @ 1..) => input.extend_from_slice(&piece[..length]),
            _ => break,
        }
        if rng.u8(..10) == 0 {
            sleep(Duration::from_millis(rng.u64(1..90))).await;
        }
        let mut answers = String::new();
        while let Some((command, key)) = first_command(&mut input) {
            answers += match rng.u8(..10) {
                0 => "-LOADING Redis is loading the dataset in memory\r\n",
                1 | 2 if command == "EVALSHA" => "-NOSCRIPT No matching script.\r\n",
                _ => {
                    *runs.entry(key).or_default() += 1;
                    ":1\r\n"
                }
            };
        }
        let (now, later) = answers.split_at(rng.usize(..=answers.len()));
        if stream.write_all(now.as_bytes()).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
        if stream.write_all(later.as_bytes()).await.is_err() {
            break;
        }
    }
    runs
}

/// Takes the first whole command out of `input`: its name, and its key.
fn first_command(input: &mut Vec<u8>) -> Option<(String, u64)> {
    let text = String::from_utf8(input.clone()).expect("commands are text here");
    // `*4`, then a length and an argument four times.
    let lines: Vec<_> = text.split_inclusive("\r\n").take(9).collect();
    if lines.len() < 9 || !lines[8].ends_with("\r\n") {
        return None;
    }
    let length: usize = lines.iter().map(|line| line.len()).sum();
    let key = lines[8].trim().parse().expect("the key is a number");
    let command = lines[2].trim().to_owned();
    input.drain(..length);
    Some((command, key))
}

async fn history(seed: u64) -> HashMap<CallErrorKind, u32> {
    let mut rng = Rng::with_seed(seed);
    let options = NodeOptions {
        waiting: rng.usize(1..40),
        unanswered: rng.usize(1..20),
        ..NodeOptions::default()
    };
    let (client, server) = duplex(rng.usize(1..2_000));
    let server = tokio::spawn(serve(server, rng.u64(..)));
    let queue = Arc::new(Queue::new(options.waiting));
    let breaker = Breaker::new(BreakerSettings::default(), 1, EventSink::default());
    let wire = Wire::new(client, Arc::clone(&queue), Arc::new(breaker), &options);
    let wire = tokio::spawn(wire);
    let script = Arc::new(Script::new("return 1"));
    let mut callers = JoinSet::new();
    let mut abandoned = Vec::new();
    for key in 0..CALLS {
        if rng.bool() {
            sleep(Duration::from_millis(rng.u64(..20))).await;
        }
        let began = Instant::now();
        let deadline = began + options.deadline;
        let (waiting, call) = Waiting::new(&script, &[key.to_string()], &[""; 0], deadline);
        let call = queue.push(waiting).map_or_else(Call::refused, |()| call);
        if rng.u8(..10) == 0 {
            drop(call);
            abandoned.push(key);
            continue;
        }
        callers.spawn(async move {
            let answer = call.await;
            assert!(
                began.elapsed() <= Duration::from_millis(50),
                "seed {seed}, call {key}"
            );
            (key, answer)
        });
    }
    let answers = callers.join_all().await;
    wire.abort();
    let runs = server.await.expect("the server ends when the wire does");
    let ran = |key| runs.get(&key).copied().unwrap_or(0);
    let mut errors = HashMap::new();
    for (key, answer) in answers {
        match answer {
            Ok(value) => {
                assert_eq!(value, Value::Int(1));
                assert_eq!(ran(key), 1, "seed {seed}, call {key} was answered");
            }
            Err(error) => {
                *errors.entry(error.kind()).or_default() += 1;
                let most = u32::from(error.may_have_run());
                assert!(ran(key) <= most, "seed {seed}, call {key}: {error}");
            }
        }
    }
    for key in abandoned {
        assert!(ran(key) <= 1, "seed {seed}, call {key} was given up");
    }
    errors
}

#[tokio::test(start_paused = true)]
async fn in_random_histories_nothing_runs_twice_and_what_is_said_not_to_have_run_did_not() {
    let mut errors: HashMap<CallErrorKind, u32> = HashMap::new();
    for seed in 0..400 {
        for (kind, count) in history(seed).await {
            *errors.entry(kind).or_default() += count;
        }
    }
    // The histories reach every way in which a call can fail.
    for kind in [
        CallErrorKind::Unavailable,
        CallErrorKind::Overloaded,
        CallErrorKind::Expired,
        CallErrorKind::Unknown,
    ] {
        assert!(errors.contains_key(&kind), "{kind:?} never happened");
    }
}
