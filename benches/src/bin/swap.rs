//! What requests feel of rules that are swapped twice a second: two processes on one Redis, every algorithm under every
//! consistency, between smaller, larger, shadow, off and another algorithm; and the same in memory, on two threads.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin swap -- --seconds 60
//! ```
//!
//! Both sides have so many seconds, in turns of five. It fails if a request or a swap has failed, or if swaps make p99.9 more than
//! 1.5 times as long.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench reads the time and prints its figures"
)]

use std::{
    cell::RefCell,
    env,
    error::Error,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use tokio::{
    task::LocalSet,
    time::{MissedTickBehavior, interval, sleep},
};
use tollgate::{
    Consistency, Key, LiveLimiter, MemoryStore, OnStoreError, Quota, Rule, SECOND,
    decision::Outcome, store::LeaseShare,
};
use tollgate_benches::redis::server::Server;
use tollgate_redis::{Keys, RedisStore};

const PROCESSES: usize = 2;
/// Callers of a process, each of which waits for its answer and then for a while.
const CALLERS: usize = 16;
const PAUSE: Duration = Duration::from_millis(2);
const CLIENTS: usize = 64;
const SWAP: Duration = Duration::from_millis(500);
const TURN: u64 = 5;

/// The most that p99.9 with swaps may be of the one without.
const GOAL: f64 = 1.5;

/// A round trip that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(5);

const CONSISTENCIES: [Consistency; 3] = [
    Consistency::Exact,
    Consistency::Leased {
        share: LeaseShare::percent(10),
    },
    Consistency::Eventual {
        interval: Duration::from_millis(50),
        max_unreported: 10,
    },
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let value = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(place + 1)
    };
    if let Some(address) = value("--process") {
        play(address)?;
        return Ok(ExitCode::SUCCESS);
    }
    let seconds = value("--seconds").map_or(Ok(60), |seconds| seconds.parse::<u64>())?;
    let server = Server::start()?;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Process::start(&server.address())?);
    }
    // The first turn warms up.
    measure(&mut processes, true, 2)?;
    let [mut plain, mut swapped] = [(); 2].map(|()| Measured::default());
    for _ in 0..seconds.div_ceil(TURN) {
        plain.add(&measure(&mut processes, false, TURN)?);
        swapped.add(&measure(&mut processes, true, TURN)?);
    }
    let through_redis = print("redis, 2 processes", &plain, &swapped);
    let [mut plain, mut swapped] = [(); 2].map(|()| Measured::default());
    for _ in 0..seconds.div_ceil(TURN) {
        plain.add(&in_memory(false)?);
        swapped.add(&in_memory(true)?);
    }
    let in_memory = print("memory, 2 threads", &plain, &swapped);
    Ok(match through_redis && in_memory {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Whether the goals hold.
fn print(what: &str, plain: &Measured, swapped: &Measured) -> bool {
    println!("{what}");
    for (name, side) in [("without swaps", plain), ("with swaps", swapped)] {
        let [p50, p99, p999] = side.quantiles();
        println!(
            "  {name:<14} {:>9} requests, {} failed, {:>5} swaps   p50 {p50:>9.2} µs   p99 {p99:>9.2} µs   p99.9 {p999:>9.2} µs",
            side.count(),
            side.failed,
            side.swaps
        );
    }
    let (before, after) = (plain.quantiles(), swapped.quantiles());
    let [p50, p99, p999] = [0, 1, 2].map(|index: usize| after[index] / before[index]);
    let failed = plain.failed + swapped.failed;
    let holds = failed == 0 && p999 <= GOAL;
    println!(
        "  ratio          p50 {p50:.2}   p99 {p99:.2}   p99.9 {p999:.2}   goal: p99.9 <= {GOAL}, none failed: {}",
        if holds { "yes" } else { "NO" }
    );
    holds
}

/// The rules after so many swaps, each at another phase: smaller, larger, shadow, off, and another algorithm.
fn rules(step: usize) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (number, consistency) in CONSISTENCIES.into_iter().enumerate() {
        for rule in 0..8 {
            let phase = step + rule + number;
            let limit = [2_000, 500, 1_000, 200, 1_000, 1_000][phase % 6];
            let quota = [
                Quota::fixed_window(limit, SECOND),
                Quota::sliding_window(limit, SECOND),
                Quota::sliding_buckets(limit, SECOND),
                // The most that a log remembers.
                Quota::sliding_log(limit.min(1_000), SECOND),
                Quota::gcra(limit, SECOND),
                Quota::token_bucket(limit).refill(limit, SECOND),
                Quota::leaky_bucket(limit).leak(limit, SECOND),
            ][if rule < 7 { rule } else { phase % 5 }];
            let rule = Rule::new(format!("rule-{number}-{rule}"), quota)
                .consistency(consistency)
                .on_store_error(OnStoreError::Deny);
            rules.push(match phase % 6 {
                2 => rule.shadow(),
                4 => rule.off(),
                _ => rule,
            });
        }
    }
    rules
}

/// Asks once, under one snapshot of the rules. Returns whether there was an answer.
async fn ask(limiter: &LiveLimiter, request: usize) -> bool {
    let limiter = limiter.limiter();
    let rule = &limiter.rules().given()[request % 24];
    let client = request / 24 % CLIENTS;
    let Ok(check) = limiter.check(rule.name(), &Key::of(client as u64)) else {
        return false;
    };
    let decision = limiter.acquire(&[check]).await;
    let verdicts = decision.verdicts();
    verdicts
        .iter()
        .all(|verdict| verdict.outcome() != Outcome::Failed)
}

/// Latencies by size, 64 sizes for each doubling: within 1.1 %.
#[derive(Clone, Debug, Default)]
struct Measured {
    sizes: Vec<u64>,
    failed: u64,
    swaps: u64,
}

impl Measured {
    fn note(&mut self, took: Duration) {
        let size = (took.as_nanos().max(1) as f64).log2() * 64.0;
        let size = size as usize;
        if self.sizes.len() <= size {
            self.sizes.resize(size + 1, 0);
        }
        self.sizes[size] += 1;
    }

    fn add(&mut self, other: &Self) {
        if self.sizes.len() < other.sizes.len() {
            self.sizes.resize(other.sizes.len(), 0);
        }
        for (all, more) in self.sizes.iter_mut().zip(&other.sizes) {
            *all += more;
        }
        self.failed += other.failed;
        self.swaps += other.swaps;
    }

    fn count(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// p50, p99 and p99.9 in microseconds.
    fn quantiles(&self) -> [f64; 3] {
        [0.5, 0.99, 0.999].map(|part| {
            let rank = (self.count() as f64 * part) as u64;
            let mut before = 0;
            let size = self.sizes.iter().position(|count| {
                before += count;
                before > rank
            });
            let size = size.unwrap_or(self.sizes.len()) as f64;
            ((size + 0.5) / 64.0).exp2() / 1_000.0
        })
    }

    fn line(&self) -> String {
        let numbers = [self.failed, self.swaps].into_iter();
        let numbers = numbers.chain(self.sizes.iter().copied());
        let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
        numbers.join(" ")
    }

    fn of_line(line: &str) -> Result<Self, Box<dyn Error>> {
        let numbers = line.split_whitespace().map(str::parse::<u64>);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
        let [failed, swaps, sizes @ ..] = &numbers[..] else {
            return Err("a process has ended".into());
        };
        Ok(Self {
            sizes: sizes.to_vec(),
            failed: *failed,
            swaps: *swaps,
        })
    }
}

/// This program again, as one of the processes. Ends with this one.
struct Process {
    child: Child,
    turns: ChildStdin,
    measured: BufReader<ChildStdout>,
}

impl Process {
    fn start(address: &str) -> io::Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--process", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (turns, measured) = pipes.ok_or_else(|| io::Error::other("there are no pipes"))?;
        Ok(Self {
            child,
            turns,
            measured: BufReader::new(measured),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One turn of all processes.
fn measure(
    processes: &mut [Process],
    swaps: bool,
    seconds: u64,
) -> Result<Measured, Box<dyn Error>> {
    for process in &mut *processes {
        writeln!(process.turns, "{swaps} {seconds}")?;
    }
    let mut all = Measured::default();
    for process in processes {
        let mut line = String::new();
        process.measured.read_line(&mut line)?;
        all.add(&Measured::of_line(&line)?);
    }
    Ok(all)
}

/// Has turns until there are no more.
fn play(address: &str) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let limiter = runtime.block_on(async {
        let store = RedisStore::builder(address, "swap", Keys::plain()).deadline(PATIENCE);
        let store = store.connect()?;
        store.connected().await;
        Ok::<_, Box<dyn Error>>(LiveLimiter::new(store, rules(0))?)
    })?;
    for line in io::stdin().lines() {
        let line = line?;
        let (swaps, seconds) = line.split_once(' ').ok_or("a turn")?;
        let (swaps, seconds) = (swaps == "true", Duration::from_secs(seconds.parse()?));
        let measured = runtime.block_on(turn(&limiter, swaps, seconds))?;
        println!("{}", measured.line());
    }
    Ok(())
}

async fn turn(
    limiter: &LiveLimiter,
    swaps: bool,
    span: Duration,
) -> Result<Measured, Box<dyn Error>> {
    limiter.replace(rules(0))?;
    let end = Instant::now() + span;
    let measured = Rc::new(RefCell::new(Measured::default()));
    let tasks = LocalSet::new();
    for caller in 0..CALLERS {
        let (limiter, measured) = (limiter.clone(), Rc::clone(&measured));
        tasks.spawn_local(async move {
            for request in caller * 7.. {
                let begin = Instant::now();
                if begin >= end {
                    break;
                }
                let is_answered = ask(&limiter, request).await;
                let took = begin.elapsed();
                measured.borrow_mut().note(took);
                measured.borrow_mut().failed += u64::from(!is_answered);
                sleep(PAUSE).await;
            }
        });
    }
    if swaps {
        let (limiter, measured) = (limiter.clone(), Rc::clone(&measured));
        tasks.spawn_local(async move {
            let mut ticks = interval(SWAP);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            for step in 1.. {
                ticks.tick().await;
                if Instant::now() >= end {
                    break;
                }
                let refused = limiter.replace(rules(step)).is_err();
                let mut measured = measured.borrow_mut();
                measured.swaps += 1;
                measured.failed += u64::from(refused);
            }
        });
    }
    tasks.await;
    Ok(measured.take())
}

/// A turn of two threads on a memory store; a third one swaps.
fn in_memory(swaps: bool) -> Result<Measured, Box<dyn Error>> {
    let limiter = LiveLimiter::new(MemoryStore::new(), rules(0))?;
    let end = Instant::now() + Duration::from_secs(TURN);
    let mut all = Measured::default();
    thread::scope(|threads| {
        let callers: Vec<_> = (0..2)
            .map(|caller| {
                let limiter = &limiter;
                threads.spawn(move || callers_turn(limiter, caller, end))
            })
            .collect();
        if swaps {
            for step in 1.. {
                thread::park_timeout(SWAP);
                if Instant::now() >= end {
                    break;
                }
                all.failed += u64::from(limiter.replace(rules(step)).is_err());
                all.swaps += 1;
            }
        }
        for caller in callers {
            if let Ok(measured) = caller.join() {
                all.add(&measured);
            }
        }
    });
    Ok(all)
}

fn callers_turn(limiter: &LiveLimiter, caller: usize, end: Instant) -> Measured {
    let mut measured = Measured::default();
    for request in caller * 7.. {
        let begin = Instant::now();
        if begin >= end {
            break;
        }
        let limiter = limiter.limiter();
        let rule = &limiter.rules().given()[request % 24];
        let key = Key::of((request / 24 % CLIENTS) as u64);
        let decision = limiter.try_acquire(rule.name(), &key);
        measured.note(begin.elapsed());
        let is_answered = decision.is_ok_and(|decision| {
            let mut verdicts = decision.verdicts().iter();
            verdicts.all(|verdict| verdict.outcome() != Outcome::Failed)
        });
        measured.failed += u64::from(!is_answered);
    }
    measured
}
