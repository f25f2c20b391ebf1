//! Waiting for what has to happen.

use std::{fmt::Debug, time::Duration};

use tokio::time::{Instant, sleep};

use crate::redis_server::PATIENCE;

/// Asks for a condition again and again until it holds.
///
/// # Panics
///
/// It does not hold within twice [`PATIENCE`]: servers that watch each other come to an end late on a busy machine.
pub async fn eventually<T: Debug, F: Future<Output = Option<T>>>(
    what: &str,
    condition: impl Fn() -> F,
) -> T {
    let until = Instant::now() + 2 * PATIENCE;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(Instant::now() < until, "it never happened that {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
