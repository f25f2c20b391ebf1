//! A queue whose jobs go to a provider that takes five a second. A job that the limit refuses goes back into the queue, invisible
//! until it may run: `cargo run --example requeue`.
//!
//! The queue here is in memory. With a real one the retry time is the visibility delay: `ChangeMessageVisibility` of SQS, the
//! delay of a Redis or RabbitMQ queue, `run_at` of a table of jobs. The worker goes on with the next job instead of waiting.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{collections::BTreeMap, error::Error, time::Duration};

use tokio::time::{Instant, sleep_until};
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule, SECOND};

/// Jobs by the time at which they become visible, in order of arrival among equals.
#[derive(Debug, Default)]
struct Queue {
    jobs: BTreeMap<(Instant, u64), String>,
    added: u64,
}

impl Queue {
    /// Adds a job that is invisible for this long.
    fn add(&mut self, job: String, delay: Duration) {
        self.added += 1;
        self.jobs.insert((Instant::now() + delay, self.added), job);
    }

    /// The next job, once it is visible. `None` if there is none.
    async fn take(&mut self) -> Option<String> {
        let visible_at = self.jobs.first_key_value()?.0.0;
        sleep_until(visible_at).await;
        self.jobs.pop_first().map(|(_, job)| job)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(
        MemoryStore::new(),
        [Rule::new(
            "provider",
            Quota::token_bucket(3).refill(5, SECOND),
        )],
    )?;
    let mut queue = Queue::default();
    for job in 1..=10 {
        queue.add(format!("job {job}"), Duration::ZERO);
    }

    let start = Instant::now();
    while let Some(job) = queue.take().await {
        let check = limiter.check("provider", &Key::of("api.example.com"))?;
        let decision = limiter.acquire(&[check]).await;
        let after = start.elapsed();
        if decision.is_allowed() {
            println!("{after:>8.1?}  {job} runs");
            continue;
        }
        // Some time is always known, unless the store fails or a job costs more than the limit.
        let delay = decision.retry_after().unwrap_or(Duration::from_secs(1));
        println!("{after:>8.1?}  {job} is back in {delay:.1?}");
        queue.add(job, delay);
    }
    Ok(())
}
