//! What stalls and short outages cost, by a whole node before a server in memory, on a paused clock.

use std::{io, sync::Arc, time::Duration};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    address::Address,
    connection::{
        node::Node, options::NodeOptions, request::Request, script::Script, stream::memory,
    },
};

/// How a server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    /// Connections are accepted and held, and nothing is answered.
    Stalls,
    /// Connections are closed, and new ones refused.
    IsGone,
    /// Everything is answered by an error.
    Loads,
}

/// A server that fails for a time, again and again, and who asks it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) failing: Failing,
    pub(crate) lasts_ms: u64,
    pub(crate) every_ms: u64,
    pub(crate) deadline_ms: u64,
    /// Requests in a second.
    pub(crate) rate: u64,
}

/// What it costs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Requests.
    asked: u64,
    /// Those that the server has not decided.
    fallback: u64,
    /// The longest wait of a request.
    longest: Duration,
}

impl Schedule {
    /// The share of the time for which the server fails, in percent.
    pub(crate) fn share(&self) -> f64 {
        self.lasts_ms as f64 * 100.0 / self.every_ms as f64
    }

    /// When it fails the next time or at this time, and until when.
    fn fails(&self, since: Duration) -> (Duration, Duration) {
        let ms = Duration::from_millis;
        let before = (self.every_ms - self.lasts_ms) / 2;
        // In the middle of each round.
        let round = (since.as_millis() as u64 + before) / self.every_ms;
        let begins = ms(round * self.every_ms + before);
        let ends = begins + ms(self.lasts_ms);
        if since < ends {
            (begins, ends)
        } else {
            (begins + ms(self.every_ms), ends + ms(self.every_ms))
        }
    }

    /// The share of requests that it cost, in percent, over so much time.
    pub(crate) async fn cost(self, seconds: u64) -> (f64, Duration) {
        let rounds = (seconds * 1_000).div_ceil(self.every_ms) as u32;
        let cost = self.run(rounds, 7).await;
        (
            cost.fallback as f64 * 100.0 / cost.asked as f64,
            cost.longest,
        )
    }

    /// Until when it fails, if it does at this time.
    fn fails_until(&self, since: Duration) -> Option<Duration> {
        let (begins, ends) = self.fails(since);
        (begins <= since).then_some(ends)
    }

    /// Requests for so many rounds. `seed` is where chance begins: that of pauses, and when requests come.
    async fn run(self, rounds: u32, seed: u64) -> Cost {
        let began = Instant::now();
        memory::listen("/stalls", move |stream| {
            if self.failing == Failing::IsGone && self.fails_until(began.elapsed()).is_some() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            tokio::spawn(self.serve(stream, began));
            Ok(())
        });
        let options = NodeOptions {
            deadline: Duration::from_millis(self.deadline_ms),
            seed,
            ..NodeOptions::default()
        };
        let address = Address::parse("unix:///stalls").expect("a path");
        let node = Node::start(address, options).expect("a server");
        while !node.is_connected() {
            sleep(Duration::from_millis(1)).await;
        }
        self.drive(&node, began, rounds, seed).await
    }

    async fn drive(self, node: &Node, began: Instant, rounds: u32, seed: u64) -> Cost {
        let script = Arc::new(Script::new("return 1"));
        let mut rng = Rng::with_seed(seed);
        let (mut asked, mut fallback, mut longest) = (0, 0, Duration::ZERO);
        let mut calls = JoinSet::new();
        let ends = began + Duration::from_millis(self.every_ms) * rounds;
        let mut next = Instant::now();
        let mut answered = |answer: Result<(bool, Duration), _>| {
            let (is_answered, waited) = answer.expect("no call panics");
            asked += 1;
            fallback += u64::from(!is_answered);
            longest = longest.max(waited);
        };
        while next < ends {
            sleep_until(next).await;
            let call = node.call(Request::new(&script, &["k"], &[]));
            let sent = Instant::now();
            calls.spawn(async move { (call.await.is_ok(), sent.elapsed()) });
            while let Some(answer) = calls.try_join_next() {
                answered(answer);
            }
            next += Duration::from_secs(1).mul_f64((0.5 + rng.f64()) / self.rate as f64);
        }
        while let Some(answer) = calls.join_next().await {
            answered(answer);
        }
        Cost {
            asked,
            fallback,
            longest,
        }
    }

    async fn serve(self, mut stream: DuplexStream, began: Instant) {
        let mut input = Vec::new();
        loop {
            // A server takes all that is there in one go.
            input.reserve(1 << 16);
            let since = began.elapsed();
            let until = self.fails_until(since);
            match (self.failing, until) {
                (Failing::Stalls, Some(until)) => sleep_until(began + until).await,
                (Failing::IsGone, Some(_)) => return,
                _ => {}
            }
            let next = async {
                match self.failing {
                    Failing::IsGone => sleep_until(began + self.fails(since).0).await,
                    _ => std::future::pending().await,
                }
            };
            // What came during a stall is there already.
            if input.is_empty() {
                tokio::select! {
                    biased;
                    read = stream.read_buf(&mut input) => match read {
                        Ok(1..) => {}
                        _ => return,
                    },
                    () = next => {}
                }
                continue;
            }
            let is_loading = self.failing == Failing::Loads && until.is_some();
            let mut answers = String::new();
            while let Some(command) = take_command(&mut input) {
                answers += match command.as_str() {
                    "EVALSHA" | "EVAL" if is_loading => {
                        "-LOADING Redis is loading the dataset in memory\r\n"
                    }
                    "EVALSHA" | "EVAL" => ":1\r\n",
                    _ => "+OK\r\n",
                };
            }
            sleep(Duration::from_millis(1)).await;
            if stream.write_all(answers.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// The name of the first command, if it is there as a whole.
fn take_command(input: &mut Vec<u8>) -> Option<String> {
    fn line<'a>(input: &'a [u8], at: &mut usize) -> Option<&'a str> {
        let end = input[*at..].windows(2).position(|two| two == b"\r\n")?;
        let line = str::from_utf8(&input[*at..*at + end]).ok()?;
        *at += end + 2;
        Some(line)
    }
    let mut at = 0;
    let count: usize = line(input, &mut at)?[1..].parse().ok()?;
    let mut name = None;
    for _ in 0..count {
        let length: usize = line(input, &mut at)?[1..].parse().ok()?;
        let argument = input.get(at..at + length)?;
        name.get_or_insert_with(|| String::from_utf8_lossy(argument).into_owned());
        at += length + 2;
    }
    if at > input.len() {
        return None;
    }
    input.drain(..at);
    name
}
