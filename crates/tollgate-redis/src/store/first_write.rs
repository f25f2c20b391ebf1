//! The first write of a start that would rather fail: whether the server would decide requests.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    connection::{
        error::CallErrorKind,
        prober::{LIFE, PROBE},
    },
    store::shared::Shared,
};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the server takes a script that writes, as decisions do. `refusal` is what it last answered instead.
pub(super) async fn first_write(shared: &Shared, refusal: &mut Option<String>) {
    let key = shared.keyspace.start();
    while let Err(error) = shared.backend.run(&PROBE, &[&key], &["1", LIFE]).await {
        match error.kind() {
            // A server that is far away, or busy at this moment, refuses nothing.
            CallErrorKind::Unknown | CallErrorKind::Expired | CallErrorKind::Overloaded => return,
            _ => *refusal = Some(with_remedy(&error.to_string())),
        }
        sleep(PAUSE).await;
    }
}

/// What the server answered, with what would be right where that does not say it.
fn with_remedy(line: &str) -> String {
    let remedies = [
        (
            "MOVED ",
            "the server belongs to a cluster: name it with redis-cluster://",
        ),
        (
            "READONLY ",
            "name the master, or the sentinels that know it with redis-sentinel://",
        ),
        (
            "NOPERM ",
            "the page `access` of the guide has the rights that a user needs",
        ),
    ];
    match remedies.iter().find(|(code, _)| line.starts_with(code)) {
        Some((_, remedy)) => format!("{line}; {remedy}"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_would_be_right() {
        for (line, words) in [
            ("MOVED 866 127.0.0.1:7001", "redis-cluster://"),
            (
                "READONLY You can't write against a read only replica.",
                "redis-sentinel://",
            ),
            ("NOPERM this user has no permissions", "`access`"),
        ] {
            let text = with_remedy(line);
            assert!(text.starts_with(line) && text.contains(words), "{text}");
        }
        assert_eq!(
            with_remedy("OOM command not allowed"),
            "OOM command not allowed"
        );
    }
}
