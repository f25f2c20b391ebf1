//! How time is taken: short rounds of one and the other by turns, so that a slow phase of the machine hits both.

use std::{
    iter::{Cycle, Skip},
    slice,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use tollgate_benches::workload::Namer;

/// How long one side runs in one round.
const SPAN: Duration = Duration::from_millis(60);

/// Operations of one side before the other has its turn, where turns are short.
const TURN: usize = 256;

/// Operations that are prepared together.
const BATCH: usize = 256;

/// What was measured of one side against the other, in nanoseconds for each operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    /// The median of the ratios of the rounds, not the ratio of the medians.
    pub(crate) ratio: f64,
}

impl Compared {
    /// From the two sides of each round.
    pub(crate) fn of(rounds: &[(f64, f64)]) -> Self {
        Self {
            ours: median(rounds.iter().map(|round| round.0)),
            theirs: median(rounds.iter().map(|round| round.1)),
            ratio: median(rounds.iter().map(|round| round.0 / round.1)),
        }
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A thread's way through a sequence.
type Clients<'a> = Skip<Cycle<slice::Iter<'a, u32>>>;

/// Many threads that go through a sequence, each from a place of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course<'a> {
    pub(crate) clients: &'a [u32],
    pub(crate) threads: usize,
}

impl Course<'_> {
    /// Compares two operations on a client's name, in `rounds` rounds.
    pub(crate) fn compare(
        self,
        rounds: usize,
        ours: impl Fn(&String) + Sync,
        theirs: impl Fn(&String) + Sync,
    ) -> Compared {
        // The first round warms up.
        let rounds: Vec<_> = (0..=rounds)
            .map(|round| (self.run(round, &ours), self.run(round, &theirs)))
            .collect();
        Compared::of(&rounds[1..])
    }

    /// Nanoseconds that an operation takes a thread.
    fn run(self, round: usize, operation: &(impl Fn(&String) + Sync)) -> f64 {
        self.run_with(round, Namer::new, |namer, client| {
            operation(namer.name(client));
        })
    }

    /// The same of an operation on a client's number, for which each thread has something of its own.
    pub(crate) fn run_with<T>(
        self,
        round: usize,
        own: impl Fn() -> T + Sync,
        operation: impl Fn(&mut T, u32) + Sync,
    ) -> f64 {
        self.each_thread(round, own, |own, clients| {
            repeat(&mut || {
                if let Some(client) = clients.next() {
                    operation(own, *client);
                }
            })
        })
    }

    /// The same of an operation on what is prepared of a client's number just before, so that no operation waits for memory before
    /// the operation begins. That is not in the time.
    pub(crate) fn run_prepared<T, P>(
        self,
        round: usize,
        own: impl Fn() -> T + Sync,
        prepare: impl Fn(&mut T, u32) -> P + Sync,
        operation: impl Fn(&mut T, &P) + Sync,
    ) -> f64 {
        self.each_thread(round, own, |own, clients| {
            let (mut spent, mut operations) = (Duration::ZERO, 0);
            let mut batch = Vec::with_capacity(BATCH);
            while spent < SPAN {
                batch.clear();
                batch.extend(clients.take(BATCH).map(|client| prepare(own, *client)));
                let start = Instant::now();
                for prepared in &batch {
                    operation(own, prepared);
                }
                spent += start.elapsed();
                operations += batch.len();
            }
            spent.as_nanos() as f64 / operations as f64
        })
    }

    /// What the threads measured, on average.
    fn each_thread<T>(
        self,
        round: usize,
        own: impl Fn() -> T + Sync,
        measured: impl Fn(&mut T, &mut Clients<'_>) -> f64 + Sync,
    ) -> f64 {
        let barrier = Barrier::new(self.threads);
        let places = self.clients.len();
        let sum: f64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (barrier, own, measured) = (&barrier, &own, &measured);
                    let start = thread * places / self.threads + round * 700_001;
                    scope.spawn(move || {
                        let mut clients = self.clients.iter().cycle().skip(start % places);
                        let mut own = own();
                        barrier.wait();
                        measured(&mut own, &mut clients)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a bench does not panic"))
                .sum()
        });
        sum / self.threads as f64
    }
}

/// What some sides took in some rounds, in nanoseconds for each operation.
#[derive(Debug)]
pub(crate) struct Rounds(Vec<Vec<f64>>);

impl Rounds {
    /// Measures the sides in many short turns: of each round it takes the median of the turns, so that what else the machine does
    /// now and then is not in it.
    pub(crate) fn measure(rounds: usize, sides: &mut [&mut dyn FnMut()]) -> Self {
        // The first round warms up.
        let rounds = (0..=rounds).map(|_| round(sides)).skip(1);
        Self(rounds.collect())
    }

    /// One side beside another one.
    pub(crate) fn compare(&self, ours: usize, theirs: usize) -> Compared {
        let rounds = self.0.iter().map(|sides| (sides[ours], sides[theirs]));
        Compared::of(&rounds.collect::<Vec<_>>())
    }

    /// What two sides take more than a third one.
    pub(crate) fn compare_above(&self, bare: usize, ours: usize, theirs: usize) -> Compared {
        let above = |sides: &Vec<f64>| (sides[ours] - sides[bare], sides[theirs] - sides[bare]);
        Compared::of(&self.0.iter().map(above).collect::<Vec<_>>())
    }

    /// What one side took.
    pub(crate) fn median(&self, side: usize) -> f64 {
        median(self.0.iter().map(|sides| sides[side]))
    }
}

fn round(sides: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut turns = vec![Vec::new(); sides.len()];
    let start = Instant::now();
    while start.elapsed() < SPAN * sides.len() as u32 {
        for (side, turns) in sides.iter_mut().zip(&mut turns) {
            let start = Instant::now();
            for _ in 0..TURN {
                side();
            }
            turns.push(start.elapsed().as_nanos() as f64 / TURN as f64);
        }
    }
    let medians = turns.into_iter().map(|turns| median(turns.into_iter()));
    medians.collect()
}

/// Nanoseconds that an operation takes.
fn repeat(operation: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut operations = 0_u64;
    loop {
        for _ in 0..1024 {
            operation();
        }
        operations += 1024;
        let elapsed = start.elapsed();
        if elapsed >= SPAN {
            return elapsed.as_nanos() as f64 / operations as f64;
        }
    }
}
