//! Finding out whether a server that failed works again, without a request that waits for it.

use std::sync::{Arc, LazyLock};

use tokio::{
    select,
    time::{Instant, sleep_until},
};

use crate::connection::{
    breaker::Breaker,
    command::{Command, Script},
    options::NodeOptions,
    queue::{CommandQueue, QueuedCommand},
};

/// Writes, for a replica and a server without memory answer everything else.
pub(crate) static PROBE: LazyLock<Arc<Script>> = LazyLock::new(|| {
    Arc::new(Script::new(
        "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
    ))
});

/// How long a probe's key lives, in milliseconds.
pub(crate) const LIFE: &str = "5000";

/// Probes on one connection, whenever one is due. Never ends.
pub(super) async fn probe(breaker: &Breaker, queue: &CommandQueue, options: &NodeOptions) {
    loop {
        match breaker.due() {
            None => breaker.changed().await,
            Some(at) if at > Instant::now() => select! {
                () = sleep_until(at) => {}
                () = breaker.changed() => {}
            },
            Some(_) => {
                let deadline = Instant::now() + options.deadline;
                let key = options.probe_key();
                let command = Command::new(&PROBE, &[key], &["1", LIFE]);
                let (waiting, call) = QueuedCommand::new(command, deadline);
                if queue.push(waiting).is_err() {
                    // Closed, or full of calls from before: either way it is no answer.
                    breaker.probed(false);
                    continue;
                }
                // An error that does not weigh is about the probe's key or its rights: the server works.
                breaker.probed(call.await.map_or_else(|error| !error.weighs(), |_| true));
            }
        }
    }
}
