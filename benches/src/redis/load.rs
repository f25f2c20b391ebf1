//! Callers that ask one after the other, all the time.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{
    task::{LocalSet, coop::consume_budget},
    time::Instant,
};

use crate::redis::server::{Server, time_of};

/// Whom the callers name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// 16, each of them all the time.
    Hot,
    /// 10 000. All of them have a state after a second or so.
    Many,
    /// 100 000.
    Crowd,
    /// Another with each check: none is named twice.
    Cold,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Answers in a second.
    pub per_second: f64,
    /// How long half of the callers waited at most, in microseconds.
    pub median: f64,
    /// How long 99 of 100 waited at most, in microseconds.
    pub p99: f64,
    /// Processor time of the callers' thread for an answer, the connection's part included, in microseconds.
    pub callers: f64,
    /// Processor time of the server for an answer, in microseconds.
    pub server: f64,
    /// Scripts that the server ran for an answer.
    pub scripts: f64,
}

/// Lets `callers` send requests for `span`: each picks a client and waits for the answer before the next request.
///
/// Callers and connection share one thread, so that the server has a processor of its own on a machine of two.
pub async fn run<F: Future<Output = ()> + 'static>(
    server: &Server,
    (callers, clients): (usize, Clients),
    span: Duration,
    send: impl Fn(u64) -> F + Clone + 'static,
) -> Measured {
    let scripts = server.scripts();
    let busy = (time_of("thread-self"), server.processor_time());
    let start = Instant::now();
    let tasks = LocalSet::new();
    let callers: Vec<_> = (0..callers as u64)
        .map(|caller| {
            let send = send.clone();
            tasks.spawn_local(async move {
                let mut waits = Vec::with_capacity(4096);
                let mut turn = 0;
                let mut sent = Instant::now();
                while sent.duration_since(start) < span {
                    turn += 1;
                    send(clients.name(caller, turn)).await;
                    // Who is answered at once lets the others have their turn as well.
                    consume_budget().await;
                    let now = Instant::now();
                    waits.push(now.duration_since(sent).as_nanos() as f64 / 1000.0);
                    sent = now;
                }
                waits
            })
        })
        .collect();
    tasks.await;
    let elapsed = start.elapsed();
    let since = |after: Option<f64>, before: Option<f64>| {
        let spent = after.zip(before).map(|(after, before)| after - before);
        spent.unwrap_or(f64::NAN) / 1000.0
    };
    let busy = (
        since(time_of("thread-self"), busy.0),
        since(server.processor_time(), busy.1),
    );
    let scripts = match (server.scripts(), scripts) {
        (Ok(after), Ok(before)) => (after - before) as f64,
        _ => f64::NAN,
    };
    let mut waits = Vec::new();
    for caller in callers {
        waits.extend(caller.await.expect("a caller does not panic"));
    }
    waits.sort_by(f64::total_cmp);
    let count = waits.len();
    Measured {
        per_second: count as f64 / elapsed.as_secs_f64(),
        median: waits[count / 2],
        p99: waits[count * 99 / 100],
        callers: busy.0 / count as f64,
        server: busy.1 / count as f64,
        scripts: scripts / count as f64,
    }
}

impl Measured {
    /// On average over turns that took as long.
    #[must_use]
    pub fn mean(turns: &[Self]) -> Self {
        let of =
            |figure: fn(&Self) -> f64| turns.iter().map(figure).sum::<f64>() / turns.len() as f64;
        Self {
            per_second: of(|measured| measured.per_second),
            median: of(|measured| measured.median),
            p99: of(|measured| measured.p99),
            callers: of(|measured| measured.callers),
            server: of(|measured| measured.server),
            scripts: of(|measured| measured.scripts),
        }
    }
}

impl Clients {
    /// No two callers name the same clients in step.
    fn name(self, caller: u64, turn: u64) -> u64 {
        static COLD: AtomicU64 = AtomicU64::new(1 << 32);
        let client = caller * 7_919 + turn * 4_801;
        match self {
            Self::Hot => client % 16,
            Self::Many => client % 10_000,
            Self::Crowd => client % 100_000,
            Self::Cold => COLD.fetch_add(1, Ordering::Relaxed),
        }
    }
}
