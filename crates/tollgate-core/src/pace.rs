//! Streams at the pace of a rule.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;

use crate::{
    check::Check, error::UnknownName, key::Key, limiter::Limiter, quota::MAX_PERIOD, step::Pending,
    ticket::Ticket,
};

/// How long an item waits before it asks again, where nothing says when: the store has failed, or too many wait.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A stream whose items come at the pace of a rule: made by [`Limiter::pace`].
#[must_use = "a stream does nothing until it is polled"]
pub struct Paced<S: Stream> {
    limiter: Limiter,
    check: Check,
    stream: Pin<Box<S>>,
    /// The next item, and the wait for its units.
    next: Option<(S::Item, Pending<Ticket>)>,
    /// What the last item holds until the next one is asked for: slots, if the rule is about them.
    held: Option<Ticket>,
}

impl Limiter {
    /// The items of a stream at the pace of the rule with this name: each waits for its units, at the rule's fixed cost. None is
    /// lost, and the stream is read no further than the item that waits.
    ///
    /// An item holds the [slots](crate::Quota::concurrent) of a rule about slots until the next item is asked for, or the stream is
    /// dropped: so work on an item before you ask for the next one.
    ///
    /// Under a rule that [waits](crate::Rule::wait) the places are the store's: processes that share it pace one provider together,
    /// in one order. Give such a rule a wait of minutes: an item that waits longer asks again, behind all others.
    ///
    /// ```
    /// use tokio_stream::StreamExt;
    /// use tollgate_core::{Clock, Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rule = Rule::new("provider", Quota::per_second(5).burst(1)).wait(MINUTE);
    /// let store = MemoryStore::builder().clock(Clock::tokio()).build();
    /// let limiter = Limiter::new(store, [rule])?;
    /// let events = tokio_stream::iter(1..=3);
    /// let mut paced = limiter.pace("provider", &Key::shared(), events)?;
    /// while let Some(event) = paced.next().await {
    ///     // Five a second.
    ///     println!("{event}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// There is no rule of this name.
    ///
    /// # Cancel safety
    ///
    /// A stream that is dropped gives the place of its next item back, unless a request has queued behind it. The item is lost with
    /// the stream.
    ///
    /// A call of `next` that is dropped leaves its item, and its place at the front of the queue, to the next call. Others of the
    /// same rule and key wait behind it: go on asking, or drop the stream.
    ///
    /// # Panics
    ///
    /// When it is polled outside of a tokio runtime with its timer enabled, and has to wait.
    pub fn pace<S: Stream>(
        &self,
        rule: &str,
        key: &Key,
        stream: S,
    ) -> Result<Paced<S>, UnknownName> {
        Ok(Paced {
            check: self.check(rule, key)?,
            limiter: self.clone(),
            stream: Box::pin(stream),
            next: None,
            held: None,
        })
    }
}

impl<S: Stream> Stream for Paced<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = &mut *self;
        drop(this.held.take());
        if this.next.is_none() {
            let Some(item) = ready!(this.stream.as_mut().poll_next(cx)) else {
                return Poll::Ready(None);
            };
            let units = take_units(this.limiter.clone(), this.check);
            this.next = Some((item, Pending::new(units)));
        }
        if let Some((_, units)) = &mut this.next {
            this.held = Some(ready!(Pin::new(units).poll(cx)));
        }
        Poll::Ready(this.next.take().map(|(item, _)| item))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.next.is_some());
        let (least, most) = self.stream.size_hint();
        let most = most.and_then(|most| most.checked_add(held));
        (least.saturating_add(held), most)
    }
}

/// Items are moved, and the stream is pinned in its box.
impl<S: Stream> Unpin for Paced<S> {}

impl<S: Stream> fmt::Debug for Paced<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced")
            .field("check", &self.check)
            .field("waits", &self.next.is_some())
            .finish_non_exhaustive()
    }
}

/// Ends when the units are taken.
async fn take_units(limiter: Limiter, check: Check) -> Ticket {
    loop {
        let again = match limiter.acquire_within(&[check], MAX_PERIOD).await {
            Ok(decision) if decision.is_allowed() => return limiter.ticket(&[check], &decision),
            Ok(decision) => decision.retry().delay(),
            Err(_) => None,
        };
        tokio::time::sleep(again.unwrap_or(ASK_AGAIN)).await;
    }
}
