//! Code of users, whose panics do not end what calls it.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

/// What a function returns; `None` if it panics.
pub(super) fn caught_call<T>(function: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(function)).ok()
}

/// What a future ends with; `None` if it panics. What makes the future belongs into it, as an `async` block.
///
/// # Cancel safety
///
/// That of the future.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    // A future that has panicked is not polled again.
    poll_fn(|cx| match caught_call(|| future.as_mut().poll(cx)) {
        Some(poll) => poll.map(Some),
        None => Poll::Ready(None),
    })
    .await
}
