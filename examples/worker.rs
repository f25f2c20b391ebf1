//! A worker that calls a provider which allows 10 calls a second and 50 at once: `cargo run --example worker`.
//!
//! No HTTP layer is involved: the same rules, from code.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{error::Error, time::Duration};

use tokio::{task::JoinSet, time::Instant};
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule, SECOND};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(
        MemoryStore::new(),
        [Rule::new(
            "provider",
            // A little less than is allowed: the ways to the provider are not equally long.
            Quota::token_bucket(49).refill(98, 10 * SECOND),
        )],
    )?;
    let call = limiter.check("provider", &Key::of("api.example.com"))?;

    // What is free now may be used at once: a batch of as many jobs as fit, 40 at the most.
    let grant = limiter.acquire_up_to(&[call], 40).await;
    println!("a batch of {} jobs goes out at once", grant.units);

    // The rest waits in a queue: in order, and never above the provider's limit.
    let start = Instant::now();
    let mut jobs = JoinSet::new();
    for job in 1..=30 {
        let limiter = limiter.clone();
        jobs.spawn(async move {
            let decision = limiter
                .acquire_within(&[call], Duration::from_secs(10))
                .await?;
            Ok::<_, tollgate::error::WaitError>((job, decision.is_allowed(), start.elapsed()))
        });
    }
    while let Some(done) = jobs.join_next().await {
        let (job, allowed, after) = done??;
        println!(
            "job {job:2} {} after {after:.1?}",
            if allowed { "called" } else { "gave up" }
        );
    }
    Ok(())
}
