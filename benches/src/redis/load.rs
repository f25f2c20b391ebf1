//! Callers that ask one after the other, all the time.

use std::time::Duration;

use tokio::{task::LocalSet, time::Instant};

use crate::redis::server::Server;

/// Different clients. All of them have a state after a second or so.
const CLIENTS: u64 = 10_000;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Answers in a second.
    pub per_second: f64,
    /// How long half of the callers waited at most, in microseconds.
    pub median: f64,
    /// How long 99 of 100 waited at most, in microseconds.
    pub p99: f64,
    /// Processor time of the server for an answer, in microseconds.
    pub server: f64,
}

/// Lets `callers` ask for `span`: each names a client and waits for the answer before it asks again.
///
/// Callers and connection share one thread, so that the server has a processor of its own on a machine of two.
pub async fn run<F: Future<Output = ()> + 'static>(
    server: &Server,
    callers: usize,
    span: Duration,
    ask: impl Fn(u64) -> F + Clone + 'static,
) -> Measured {
    let busy = server.processor_time();
    let start = Instant::now();
    let tasks = LocalSet::new();
    let callers: Vec<_> = (0..callers as u64)
        .map(|caller| {
            let ask = ask.clone();
            tasks.spawn_local(async move {
                let mut waits = Vec::with_capacity(4096);
                // So that no two callers name the same clients in step.
                let mut client = caller * 7_919;
                let mut asked = Instant::now();
                while asked.duration_since(start) < span {
                    client += 4_801;
                    ask(client % CLIENTS).await;
                    let now = Instant::now();
                    waits.push(now.duration_since(asked).as_nanos() as f64 / 1000.0);
                    asked = now;
                }
                waits
            })
        })
        .collect();
    tasks.await;
    let elapsed = start.elapsed();
    let busy = server
        .processor_time()
        .zip(busy)
        .map(|(after, before)| after - before);
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
        server: busy.unwrap_or(f64::NAN) / 1000.0 / count as f64,
    }
}
