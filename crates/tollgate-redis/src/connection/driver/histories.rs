//! Random servers and callers on a paused clock: a call's result is what became of it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::connection::{
    command::{Command, Script},
    driver::Driver,
    error::CallErrorKind,
    node::NodeState,
    options::NodeOptions,
    resp::{Value, decode},
};

const CALLS: u64 = 60;

/// How often each call ran, by the number that is its key.
type Runs = HashMap<u64, u32>;

/// Runs some commands, refuses some, knows a script or does not, dawdles, and at last hangs up.
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
        while let Some(command) = first_command(&mut input) {
            answers += &match rng.u8(..20) {
                0 => "-LOADING Redis is loading the dataset in memory\r\n".to_owned(),
                1 => "-TRYAGAIN Multiple keys request during rehashing of slot\r\n".to_owned(),
                2..5 if command[0] == "EVALSHA" => "-NOSCRIPT No matching script.\r\n".to_owned(),
                _ => run(&command, &mut runs),
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

/// Counts the calls that a command carries, and answers each with its key.
fn run(command: &[String], runs: &mut Runs) -> String {
    let count: usize = command[2].parse().expect("a number of keys");
    let (keys, args) = command[3..].split_at(count);
    for key in keys {
        *runs.entry(number(key)).or_default() += 1;
    }
    let Some((_, checks)) = args.split_first() else {
        return format!(":{}\r\n", keys[0]);
    };
    assert_eq!(checks.len(), 2 * count, "there are two checks for each key");
    let mut answer = format!("*{}\r\n:7\r\n", 1 + 3 * checks.len());
    for check in checks {
        let place = u16::from_le_bytes([check.as_bytes()[3], check.as_bytes()[4]]);
        let key = &keys[usize::from(place) - 1];
        assert_eq!(&check[5..], key, "the key that the check was made with");
        answer += &format!(":{key}\r\n").repeat(3);
    }
    answer
}

fn number(text: &str) -> u64 {
    text.parse().expect("a key is a number")
}

/// Takes the first whole command out of `input`.
fn first_command(input: &mut Vec<u8>) -> Option<Vec<String>> {
    let (command, length) = decode(input).expect("it can be read")?;
    input.drain(..length);
    let words = command.list().expect("a command is a list").iter();
    words.map(|word| word.text().map(str::to_owned)).collect()
}

static SCRIPT: Script = Script::new("return 1");

/// A call of any script, or one of two checks at one time or another, in one hash slot or another.
fn command(rng: &mut Rng, key: u64) -> Command {
    let key = key.to_string();
    if rng.u8(..4) == 0 {
        return Command::new(&SCRIPT, &[key], &[""; 0]);
    }
    let check = format!("\0\0\0\u{1}\0{key}");
    let time = if rng.u8(..4) == 0 { "later" } else { "" };
    let command = Command::by_hand(&SCRIPT, &[key], &[time, &check, &check], &[3]);
    command.in_hash_slot(rng.u16(..3) / 2)
}

/// Whether this is what `run` answers to a call with this key.
fn is_answer(value: &Value, key: u64) -> bool {
    let key = key as i64;
    match value {
        Value::Integers(numbers) => {
            numbers.len() == 7
                && numbers[0] == 7
                && numbers[1..].iter().all(|number| *number == key)
        }
        value => *value == Value::Integer(key),
    }
}

async fn history(seed: u64) -> HashMap<CallErrorKind, u32> {
    let mut rng = Rng::with_seed(seed);
    let options = NodeOptions {
        waiting: rng.usize(1..40),
        unanswered: rng.usize(1..20),
        together: rng.usize(1..12),
        ..NodeOptions::default()
    };
    let (client, server) = duplex(rng.usize(1..2_000));
    let server = tokio::spawn(serve(server, rng.u64(..)));
    let shared = NodeState::new(options);
    let driver = tokio::spawn(Driver::new(Box::new(client), Arc::clone(&shared)));
    let mut callers = JoinSet::new();
    let mut abandoned = Vec::new();
    for key in 0..CALLS {
        if rng.bool() {
            sleep(Duration::from_millis(rng.u64(..20))).await;
        }
        let began = Instant::now();
        let deadline = began + shared.options.deadline;
        let command = Arc::new(command(&mut rng, key));
        let call = shared.queue.push(command, deadline, false);
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
    driver.abort();
    let runs = server.await.expect("the server ends when the driver does");
    let ran = |key| runs.get(&key).copied().unwrap_or(0);
    let mut errors = HashMap::new();
    for (key, answer) in answers {
        match answer {
            Ok(value) => {
                assert!(is_answer(&value, key), "seed {seed}, call {key}: {value:?}");
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
        assert!(ran(key) <= 1, "seed {seed}, call {key} failed");
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
        CallErrorKind::NotSent,
        CallErrorKind::NoAnswer,
        CallErrorKind::TryAgain,
    ] {
        assert!(errors.contains_key(&kind), "{kind:?} never happened");
    }
}
