//! Code of users, whose panics do not end what calls it.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

/// What a future ends with; `None` if it panics. What makes the future belongs into it, as an `async` block.
///
/// # Cancel safety
///
/// That of the future.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    // A future that has panicked is not polled again.
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
        },
    )
    .await
}
