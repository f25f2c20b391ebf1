//! Slots of processes that are killed, that stand still, and that are started anew.
//!
//! Each process writes down when its requests start and end, by the clock that the processes of a machine share, and every 20 ms that
//! it runs. A slot is held for certain from the start of its request until its end; until its process is killed or stopped; and until
//! the process stands still by itself for so long that it may not have renewed it. At no time do more than the limit hold one.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::sleep};
use tollgate_core::{Key, Limiter, OnStoreError, Quota, Rule, Source};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{
    numbers::Numbers,
    process::{self, Process},
    redis_server::RedisServer,
};

use crate::clock;

const PROCESSES: u64 = 8;
const TASKS: u64 = 64;
const LIMIT: usize = 12;
const TERM: Duration = Duration::from_secs(2);
/// A process that has not run for so long may have lost its slots.
const STALL: u64 = 300_000;
const TICK: Duration = Duration::from_millis(20);
/// How late a message may be in the store, and how late this process may look: a machine that runs all of them on two cores is late.
const DELAY: Duration = Duration::from_secs(60);
/// What happens to processes, one thing every 150 ms.
const EVENTS: u64 = 28;

/// What a process is started for.
#[derive(Serialize, Deserialize)]
struct SlotRole {
    slots_at: String,
    log: PathBuf,
    seed: u64,
}

/// Plays the role, if this process was started for it.
pub(crate) fn play() {
    let Some(role) = process::role::<SlotRole>() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for () in process::loads() {
        runtime.block_on(run(&role));
    }
}

async fn limiter(address: &str) -> (RedisStore, Limiter) {
    let store = RedisStore::builder(address, "slots", Keys::plain())
        .deadline(Duration::from_secs(1))
        .slot_term(TERM)
        .connect()
        .expect("a valid address");
    store.connected().await;
    let rule = Rule::new("jobs", Quota::concurrent(LIMIT as u64));
    let limiter = Limiter::new(store.clone(), [rule.on_store_error(OnStoreError::Deny)]);
    (store, limiter.expect("a valid rule"))
}

async fn run(role: &SlotRole) {
    let log = OpenOptions::new().append(true).open(&role.log);
    let log = Arc::new(Mutex::new(log.expect("the log is there")));
    // One line is written whole, and stays when the process dies.
    let write = |log: &Mutex<fs::File>, line: String| {
        let mut log = log.lock().expect("no thread panics");
        log.write_all(line.as_bytes()).expect("it is written");
    };
    let (_store, limiter) = limiter(&role.slots_at).await;
    let mut tasks = JoinSet::new();
    let ticks = Arc::clone(&log);
    tasks.spawn(async move {
        loop {
            write(&ticks, format!("t {} 0\n", clock::now()));
            sleep(TICK).await;
        }
    });
    for task in 0..TASKS {
        let (limiter, log) = (limiter.clone(), Arc::clone(&log));
        let seed = role.seed * TASKS + task;
        let mut numbers = Numbers(seed);
        tasks.spawn(async move {
            loop {
                let check = limiter.check("jobs", &Key::shared()).expect("the rule");
                let asked = clock::now();
                let decision = limiter.acquire(&[check]).await;
                let started = clock::now();
                if decision.is_allowed() && decision.verdicts()[0].source() == Source::Store {
                    let ticket = limiter.ticket(&[check], &decision);
                    let number = ticket.slot_number("jobs").expect("it has a slot");
                    write(&log, format!("s {started} {number} {asked}\n"));
                    sleep(Duration::from_millis(1 + numbers.below(40))).await;
                    // Before the slot goes back.
                    write(&log, format!("e {} {number}\n", clock::now()));
                    drop(ticket);
                }
                sleep(Duration::from_millis(100 + numbers.below(400))).await;
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// A process and its life: when it was stopped or killed.
struct Life {
    process: Process,
    log: PathBuf,
    interrupted: Vec<u64>,
}

fn start(folder: &Path, address: &str, number: u64) -> Life {
    let log = folder.join(number.to_string());
    fs::write(&log, "").expect("a file");
    let mut process = Process::start(&SlotRole {
        slots_at: address.to_owned(),
        log: log.clone(),
        seed: number,
    });
    process.begin(&());
    Life {
        process,
        log,
        interrupted: Vec::new(),
    }
}

fn signal(life: &Life, signal: &str) {
    let id = life.process.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

/// A number of a slot: asked for and given at these times.
struct Numbered {
    asked: u64,
    started: u64,
    number: u64,
}

/// The times in which a request has held a slot for certain, and the numbers of all slots.
fn held(lives: &[(PathBuf, Vec<u64>)]) -> (Vec<(u64, u64)>, Vec<Numbered>) {
    let (mut held, mut numbers) = (Vec::new(), Vec::new());
    for (log, interrupted) in lives {
        let log = fs::read_to_string(log).expect("the log is there");
        // The last line may be cut off by the end of the process.
        let lines = log.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (what, at, number) = (words.next()?, words.next()?, words.next()?);
            let at = at.parse::<u64>().ok()?;
            let asked = words.next().map_or(Some(at), |asked| asked.parse().ok());
            Some((what, at, number.parse::<u64>().ok()?, asked?))
        });
        let lines: Vec<_> = lines.collect();
        let ticks: Vec<_> = lines
            .iter()
            .filter(|it| it.0 == "t")
            .map(|it| it.1)
            .collect();
        // When it stood still between two ticks is not known.
        let stalls = ticks.windows(2).filter(|two| two[1] - two[0] > STALL);
        let stalls = stalls.map(|two| (two[0], two[1]));
        let cuts = interrupted.iter().chain(ticks.last()).map(|at| (*at, *at));
        let cuts: Vec<(u64, u64)> = cuts.chain(stalls).collect();
        for (_, start, number, asked) in lines.iter().filter(|it| it.0 == "s") {
            let end = lines.iter().find(|it| it.0 == "e" && it.2 == *number);
            let end = end.map_or(u64::MAX, |it| it.1);
            // It may stand still between what the request is told and its start, too.
            let cut = cuts.iter().filter(|cut| cut.1 >= *asked).map(|cut| cut.0);
            let cut = cut.min().unwrap_or(*start);
            held.push((*start, end.min(cut).max(*start)));
            numbers.push(Numbered {
                asked: *asked,
                started: *start,
                number: *number,
            });
        }
    }
    (held, numbers)
}

/// The most that overlap.
fn most_at_once(held: &[(u64, u64)]) -> usize {
    let starts = held.iter().map(|(start, _)| (*start, 1));
    let ends = held.iter().map(|(_, end)| (*end, -1));
    let mut changes: Vec<(u64, i64)> = starts.chain(ends).collect();
    // At one time, those that end come first.
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

#[test]
fn overlapping_times_are_counted() {
    assert_eq!(most_at_once(&[(1, 5), (5, 9), (2, 3)]), 2);
    assert_eq!(most_at_once(&[(1, 5), (4, 9), (4, 6), (8, 9)]), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_than_the_slots_run_among_processes_that_die_and_stand_still() {
    let server = RedisServer::start(&[]).await;
    let folder = TempDir::new().expect("a folder");
    let mut numbers = Numbers(20_260_722);
    let mut next = PROCESSES;
    let mut running: Vec<Life> = (0..PROCESSES)
        .map(|number| start(folder.path(), &server.url(), number))
        .collect();
    let mut lives = Vec::new();
    let mut stopped: Vec<(usize, u64)> = Vec::new();
    for event in 0..EVENTS {
        sleep(Duration::from_millis(150)).await;
        // Shorter than a third of the term, about the term, and longer.
        stopped.retain(|(index, until)| {
            let goes_on = *until <= event;
            if goes_on {
                signal(&running[*index], "-CONT");
            }
            !goes_on
        });
        let index = numbers.below(PROCESSES) as usize;
        if stopped.iter().any(|it| it.0 == index) {
            continue;
        }
        running[index].interrupted.push(clock::now());
        if numbers.one_in(3) {
            let fresh = start(folder.path(), &server.url(), next);
            next += 1;
            let dead = std::mem::replace(&mut running[index], fresh);
            lives.push((dead.log.clone(), dead.interrupted.clone()));
            // As `kill -9` does.
            drop(dead);
        } else {
            signal(&running[index], "-STOP");
            stopped.push((index, event + numbers.of(&[2, 8, 18])));
        }
    }
    // All die, the stopped ones too, and some of them hold slots.
    let died = clock::now();
    for life in running {
        lives.push((life.log.clone(), life.interrupted.clone()));
        drop(life);
    }
    // What was held is back after a term and the delay of the last messages.
    let (_store, limiter) = limiter(&server.url()).await;
    let check = limiter.check("jobs", &Key::shared()).expect("the rule");
    loop {
        let left = limiter.peek(&[check.with_cost(0)]).await.verdicts()[0].remaining();
        if left == LIMIT as u64 {
            break;
        }
        let since = Duration::from_micros(clock::now() - died);
        assert!(
            since < TERM + DELAY,
            "{left} of {LIMIT} are back after {since:?}"
        );
        sleep(Duration::from_millis(50)).await;
    }
    let after = Duration::from_micros(clock::now() - died);
    eprintln!("all slots are back {after:?} after the last process died");
    let (held, mut numbers) = held(&lives);
    let most = most_at_once(&held);
    assert!(most <= LIMIT, "{most} of {LIMIT} at once");
    assert!(
        held.len() > 50 && most > LIMIT / 2,
        "{} starts, {most} at once",
        held.len()
    );
    numbers.sort_unstable_by_key(|it| it.number);
    let mut numbers_of = numbers.windows(2);
    let is_own = numbers_of.all(|two| two[0].number < two[1].number);
    assert!(is_own, "each slot has a number of its own");
    // Whatever was asked for when another had its number already has a larger one.
    let mut first_started = u64::MAX;
    for it in numbers.iter().rev() {
        assert!(
            it.asked < first_started,
            "{} was asked for after a larger number was there",
            it.number
        );
        first_started = first_started.min(it.started);
    }
}
