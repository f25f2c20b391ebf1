//! A check that is answered without Redis.

use std::{
    error::Error,
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use tollgate_benches::{
    redis::{
        local::{Knows, Local},
        server::Server,
    },
    workload::{Namer, hot, uniform},
};
use trypema::redis::RedisKeyRef;

use crate::{
    harness::{Compared, Course},
    keyed::named,
    numbers::{TIGHT_NUMBERS, WIDE_NUMBERS},
    prefilter::hybrid::Hybrid,
    reference::LossyTable,
    table::Row,
};

/// The most that a check which is answered here may cost, in nanoseconds.
const GATE: f64 = 150.0;
/// The same with 100 000 keys, whose states are not in the cache.
const GATE_OF_MANY: f64 = 200.0;

const MANY: u32 = 100_000;

/// The process has 65 536 places for denials, and of two that fall on one place it keeps the later.
const MANY_DENIED: u32 = 10_000;

/// Ours and theirs, each with a Redis and a runtime of its own. What a side does in the background is done after its
/// turns, so that neither side is measured while the other reports.
struct Duel {
    ours: Local,
    theirs: Hybrid,
    reference: LossyTable,
    clients: u32,
    /// A denial is believed for a second only, and a lease lives for ten.
    learns_anew: bool,
    runtime: Runtime,
    _servers: [Server; 2],
}

/// The figures of one round, in nanoseconds.
struct Round {
    of_limiter: (f64, f64),
    of_store: (f64, f64),
    by_name: (f64, f64),
    /// Ours by name, next to a table in this process.
    reference: (f64, f64),
    /// Of a hundred checks, those that Redis was asked about.
    sent: (f64, f64),
}

/// For how long a side does what it has put off, after each of its turns.
const BACKGROUND: Duration = Duration::from_millis(40);

pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) -> Result<(), Box<dyn Error>> {
    for (what, knows, many) in [
        ("leased", Knows::Lease, MANY),
        ("eventual", Knows::Eventual, MANY),
        ("learned denial", Knows::Bound, MANY_DENIED),
    ] {
        for (clients, sequence) in [(8, hot()), (many, uniform(many))] {
            let keys = match clients {
                8 => "one key".to_owned(),
                _ => format!("{} 000 keys", clients / 1000),
            };
            for threads in [1, 2] {
                let course = Course {
                    clients: &sequence,
                    threads,
                };
                let what = named(&format!("{what}, {keys}"), course);
                Duel::new(knows, clients)?.fight(course, &what, rounds, print)?;
            }
        }
    }
    Ok(())
}

impl Duel {
    fn new(knows: Knows, clients: u32) -> Result<Self, Box<dyn Error>> {
        let servers = [Server::start()?, Server::start()?];
        let ours = Local::connect(&servers[0], knows)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // More than anybody takes, or one a minute.
        let rate = if knows == Knows::Bound { 0.02 } else { 1e9 };
        let theirs = runtime.block_on(Hybrid::connect(&servers[1], rate))?;
        let numbers = match knows {
            Knows::Bound => TIGHT_NUMBERS,
            _ => WIDE_NUMBERS,
        };
        Ok(Self {
            ours,
            theirs,
            reference: LossyTable::new(numbers),
            clients,
            learns_anew: knows == Knows::Bound || clients == MANY,
            runtime,
            _servers: servers,
        })
    }

    fn fight(
        &self,
        course: Course<'_>,
        what: &str,
        rounds: usize,
        print: &mut dyn FnMut(Row),
    ) -> Result<(), Box<dyn Error>> {
        self.theirs.learn(&self.runtime, self.clients);
        self.ours.learn(self.clients);
        // The first round warms up.
        let mut measured = Vec::new();
        for round in 0..=rounds {
            if self.learns_anew {
                self.ours.forget(self.clients)?;
                self.ours.learn(self.clients);
            }
            measured.push(self.round(course, round));
        }
        let next_to = |peer, of: &str, unit, figure: fn(&Round) -> (f64, f64)| {
            let rounds: Vec<_> = measured[1..].iter().map(figure).collect();
            let compared = Compared::of(&rounds);
            Row::compared(format!("{what}{of}"), unit, peer, compared)
        };
        let row = |of: &str, unit, figure| next_to("trypema hybrid", of, unit, figure);
        // Of many that are denied some fall on one place, and each of those costs a round trip.
        let is_answered_here = self.clients != MANY_DENIED;
        let gated = |row: Row| match course.threads {
            1 if is_answered_here && self.clients == MANY => row.gate_on_ours(GATE_OF_MANY),
            1 if is_answered_here => row.gate_on_ours(GATE),
            _ => row,
        };
        print(gated(row("", "ns", |round| round.of_limiter)));
        print(gated(row(", store alone", "ns", |round| round.of_store)));
        print(row(", by name", "ns", |round| round.by_name));
        let figure: fn(&Round) -> _ = |round| round.reference;
        print(next_to("reference", ", by name", "ns", figure));
        print(row(", asked", "%", |round| round.sent));
        Ok(())
    }

    fn round(&self, course: Course<'_>, round: usize) -> Round {
        let made = AtomicU64::new(0);
        let own = || Own::new(&made);
        let before = (self.ours.sent(), self.theirs.sent());
        let check = |own: &mut Own<'_>, client| {
            own.made += 1;
            self.ours.check(own.namer.name(client))
        };
        let of_limiter = course.run_prepared(round, own, check, |_, check| {
            black_box(self.ours.acquire(*check));
        });
        let of_store = course.run_prepared(round, own, check, |_, check| {
            black_box(self.ours.acquire_of_store(*check));
        });
        let by_name = course.run_with(round, own, |own, client| {
            own.made += 1;
            let check = self.ours.check(own.namer.name(client));
            black_box(self.ours.acquire(check));
        });
        let sent = percent(self.ours.sent() - before.0, &made);
        self.ours.background(BACKGROUND);
        let key = |own: &mut Own<'_>, client| {
            own.made += 1;
            Hybrid::key(own.namer.name(client))
        };
        let their_keys = course.run_prepared(round, own, key, |_, key| {
            black_box(self.theirs.take(&self.runtime, key.as_key_ref()));
        });
        let their_names = course.run_with(round, own, |own, client| {
            own.made += 1;
            let key = RedisKeyRef::try_from(own.namer.name(client).as_str());
            let key = key.expect("a name is a valid key");
            black_box(self.theirs.take(&self.runtime, key));
        });
        let reference = course.run_with(round, Namer::new, |namer, client| {
            black_box(self.reference.check(namer.name(client)));
        });
        let their_sent = percent(self.theirs.sent() - before.1, &made);
        self.runtime
            .block_on(async { tokio::time::sleep(BACKGROUND).await });
        Round {
            of_limiter: (of_limiter, their_keys),
            of_store: (of_store, their_keys),
            by_name: (by_name, their_names),
            reference: (by_name, reference),
            sent: (sent, their_sent),
        }
    }
}

/// How many of a hundred checks were asked about. Then none have been made.
fn percent(sent: u64, made: &AtomicU64) -> f64 {
    100.0 * sent as f64 / made.swap(0, Ordering::Relaxed) as f64
}

/// What a thread has of its own. What it has made counts when it ends.
struct Own<'a> {
    namer: Namer,
    made: u64,
    all: &'a AtomicU64,
}

impl<'a> Own<'a> {
    fn new(all: &'a AtomicU64) -> Self {
        Self {
            namer: Namer::new(),
            made: 0,
            all,
        }
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.all.fetch_add(self.made, Ordering::Relaxed);
    }
}
