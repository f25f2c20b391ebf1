//! One scope of a server: what it has left, and who waits for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

use crate::client::{
    advice::Told,
    budgets::{Budgets, Sent},
    hold::Hold,
};

/// Requests with common limits: to one server, unless told otherwise.
#[derive(Debug)]
pub(super) struct Scope {
    budgets: Mutex<Budgets>,
    /// Who holds it is the one that waits for the server; the others wait for this, in the order of arrival.
    line: Semaphore,
    /// The first in line may go sooner than it thought.
    changed: Notify,
}

/// A place in flight. Dropping it gives it back.
#[derive(Debug)]
#[must_use]
pub(super) struct Pass<'a> {
    scope: &'a Scope,
    sent: Sent,
}

/// The head of the line of a scope.
#[derive(Debug)]
pub(super) struct Head<'a> {
    scope: &'a Scope,
    _permit: SemaphorePermit<'a>,
}

/// The server wants no request before this instant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed(pub(super) Instant);

impl Scope {
    pub(super) fn new() -> Self {
        Self {
            budgets: Mutex::default(),
            line: Semaphore::new(1),
            changed: Notify::new(),
        }
    }

    /// Takes a place in flight and one of each budget, or nothing.
    pub(super) fn take(&self) -> Result<Pass<'_>, Closed> {
        let sent = self.lock().take(Instant::now()).map_err(Closed)?;
        Ok(Pass { scope: self, sent })
    }

    /// The same, unless others wait in line.
    pub(super) fn take_in_turn(&self) -> Option<Pass<'_>> {
        let _head = self.line.try_acquire().ok()?;
        self.take().ok()
    }

    /// Until when the server wants no request, if that is in the future.
    pub(super) fn closed_until(&self) -> Option<Instant> {
        self.lock().closed_until(Instant::now())
    }

    /// Waits in line until the server takes requests again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line.
    pub(super) async fn wait(&self, deadline: Instant) -> Result<Head<'_>, Closed> {
        self.refuse_long_wait(deadline)?;
        let permit = match timeout_at(deadline, self.line.acquire()).await {
            Ok(Ok(permit)) => permit,
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => return Err(Closed(self.closed_until().unwrap_or(deadline))),
        };
        let head = Head {
            scope: self,
            _permit: permit,
        };
        head.opened(deadline).await?;
        Ok(head)
    }

    fn refuse_long_wait(&self, deadline: Instant) -> Result<(), Closed> {
        match self.closed_until() {
            Some(until) if until > deadline => Err(Closed(until)),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Budgets> {
        // Nothing panics under the lock.
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Head<'_> {
    /// Waits on, at the head of the line.
    pub(super) async fn opened(&self, deadline: Instant) -> Result<(), Closed> {
        loop {
            let changed = self.scope.changed.notified();
            self.scope.refuse_long_wait(deadline)?;
            let Some(until) = self.scope.closed_until() else {
                return Ok(());
            };
            // Either is a reason to look again.
            let _ = timeout_at(until, changed).await;
        }
    }
}

impl Pass<'_> {
    /// The server has answered: what it says of its budgets, and for how long it wants no request at all.
    pub(super) fn answered(self, budgets: &[Told], hold: Option<Hold>) {
        let now = Instant::now();
        self.scope.lock().answered(&self.sent, budgets, hold, now);
        self.scope.changed.notify_one();
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.scope.lock().ended(&self.sent);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::task::JoinSet;

    use super::*;
    use crate::client::budgets::{COUNTED, MOST, TRIAL};

    const SECOND: Duration = Duration::from_secs(1);

    fn told(left: u64, seconds: u64) -> [Told; 1] {
        [Told {
            name: 1,
            left,
            reset: Duration::from_secs(seconds),
        }]
    }

    /// A scope whose server has just said this.
    fn after(left: u64, seconds: u64) -> Scope {
        let scope = Scope::new();
        scope.take().unwrap().answered(&told(left, seconds), None);
        scope
    }

    /// A hold with nothing added.
    fn hold(asked: Duration) -> Option<Hold> {
        let spread = Duration::ZERO;
        Some(Hold { asked, spread })
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    #[tokio::test(start_paused = true)]
    async fn what_nothing_is_known_of_is_open() {
        let scope = Scope::new();
        let passes: Vec<_> = (0..100).map(|_| scope.take().unwrap()).collect();
        assert_eq!(passes.len(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_go_as_are_left_and_then_one_that_asks() {
        let scope = after(2, 3);
        let until = Instant::now() + 3 * SECOND;
        let _passes = [scope.take().unwrap(), scope.take().unwrap()];
        assert_eq!(scope.take().unwrap_err(), Closed(until));
        tokio::time::advance(3 * SECOND).await;
        let trial = scope.take().unwrap();
        assert_eq!(scope.take().unwrap_err(), Closed(Instant::now() + TRIAL));
        // It says that there are three: two others are on their way.
        trial.answered(&told(5, 10), None);
        let more: Vec<_> = std::iter::from_fn(|| scope.take().ok()).collect();
        assert_eq!(more.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_is_not_answered_is_followed_by_another() {
        let scope = after(0, 10);
        tokio::time::advance(10 * SECOND).await;
        let _hangs = scope.take().unwrap();
        assert!(scope.take().is_err());
        tokio::time::advance(TRIAL).await;
        let _second = scope.take().unwrap();
        assert!(scope.take().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_any_more_is_open() {
        let scope = after(0, 10);
        tokio::time::advance(10 * SECOND).await;
        let trial = scope.take().unwrap();
        // A slow one: others have tried meanwhile.
        tokio::time::advance(3 * SECOND).await;
        let _second = scope.take().unwrap();
        trial.answered(&[], None);
        let _open = [scope.take().unwrap(), scope.take().unwrap()];
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_budget_that_is_not_named_stays_empty_until_its_time() {
        let scope = Scope::new();
        let both = [scope.take().unwrap(), scope.take().unwrap()];
        let [first, second] = both;
        first.answered(&told(0, 10), None);
        second.answered(&[], None);
        assert!(scope.take().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_overtake_each_other_open_no_more_than_there_is() {
        let scope = after(10, 10);
        let [a, b, c] = [(); 3].map(|()| scope.take().unwrap());
        // The server has counted b, c, a.
        c.answered(&told(8, 10), None);
        b.answered(&told(9, 10), None);
        a.answered(&told(7, 10), None);
        let more: Vec<_> = std::iter::from_fn(|| scope.take().ok()).collect();
        assert_eq!(more.len(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_take_from_the_same_budget_is_not_there() {
        let scope = after(10, 10);
        scope.take().unwrap().answered(&told(3, 10), None);
        let more: Vec<_> = std::iter::from_fn(|| scope.take().ok()).collect();
        assert_eq!(more.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_for_long_was_counted_long_ago() {
        let scope = Scope::new();
        let _polls: Vec<_> = (0..100).map(|_| scope.take().unwrap()).collect();
        tokio::time::advance(COUNTED).await;
        scope.take().unwrap().answered(&told(10, 60), None);
        let more: Vec<_> = std::iter::from_fn(|| scope.take().ok()).collect();
        assert_eq!(more.len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_stops_everything_whatever_is_left() {
        let scope = Scope::new();
        let until = Instant::now() + 5 * SECOND;
        scope
            .take()
            .unwrap()
            .answered(&told(9, 60), hold(5 * SECOND));
        assert_eq!(scope.take().unwrap_err(), Closed(until));
        tokio::time::advance(5 * SECOND).await;
        scope.take().unwrap().answered(&told(9, 60), None);
        let _open = [scope.take().unwrap(), scope.take().unwrap()];
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_hold_does_not_shorten_a_longer_one() {
        let scope = Scope::new();
        let until = Instant::now() + 50 * SECOND;
        let [first, second] = [scope.take().unwrap(), scope.take().unwrap()];
        first.answered(&[], hold(50 * SECOND));
        second.answered(&[], hold(5 * SECOND));
        assert_eq!(scope.closed_until(), Some(until));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_is_spread_long_enough_is_not_spread_again() {
        let scope = Scope::new();
        let start = Instant::now();
        let [first, second, third] = [(); 3].map(|()| scope.take().unwrap());
        let hold = |asked, spread| {
            Some(Hold {
                asked: asked * SECOND,
                spread: spread * SECOND,
            })
        };
        first.answered(&[], hold(50, 3));
        assert_eq!(scope.closed_until(), Some(start + 53 * SECOND));
        second.answered(&[], hold(52, 5));
        assert_eq!(scope.closed_until(), Some(start + 53 * SECOND));
        third.answered(&[], hold(54, 1));
        assert_eq!(scope.closed_until(), Some(start + 55 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beyond_the_deadline_is_refused_at_once() {
        let scope = after(0, 100);
        let until = Instant::now() + 100 * SECOND;
        let before = Instant::now();
        let refused = scope.wait(before + 99 * SECOND).await.unwrap_err();
        assert_eq!(refused, Closed(until));
        assert_eq!(Instant::now(), before);
        scope.wait(until).await.unwrap();
        assert_eq!(Instant::now(), until);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_in_line_goes_when_an_answer_says_that_there_is_room() {
        let scope = Arc::new(after(1, 100));
        let last = scope.take().unwrap();
        let before = Instant::now();
        let waiting = tokio::spawn({
            let scope = Arc::clone(&scope);
            async move { scope.wait(far()).await.map(|_| ()) }
        });
        tokio::task::yield_now().await;
        last.answered(&told(4, 100), None);
        waiting.await.unwrap().unwrap();
        assert_eq!(Instant::now(), before);
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_go_in_the_order_in_which_they_came() {
        let scope = Arc::new(after(0, 5));
        let (told_by, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for number in 0..10 {
            let (scope, told_by) = (Arc::clone(&scope), told_by.clone());
            tasks.spawn(async move {
                loop {
                    let _head = scope.wait(far()).await.unwrap();
                    if let Ok(pass) = scope.take() {
                        told_by.send(number).unwrap();
                        pass.answered(&told(9, 5), None);
                        return;
                    }
                }
            });
            tokio::task::yield_now().await;
        }
        tasks.join_all().await;
        drop(told_by);
        for number in 0..10 {
            assert_eq!(order.recv().await, Some(number));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_gives_back_the_place_in_line_and_in_flight() {
        let scope = after(0, 5);
        {
            let mut waits = std::pin::pin!(scope.wait(far()));
            let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(std::future::Future::poll(waits.as_mut(), cx).is_pending());
            assert_eq!(scope.line.available_permits(), 0);
        }
        assert_eq!(scope.line.available_permits(), 1);
        tokio::time::advance(5 * SECOND).await;
        drop(scope.take().unwrap());
        assert_eq!(scope.lock().in_flight(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_eight_budgets_are_kept() {
        let scope = Scope::new();
        for name in 0..100 {
            let told = Told {
                name,
                left: 1_000,
                reset: SECOND,
            };
            scope.take().unwrap().answered(&[told], hold(SECOND));
            tokio::time::advance(SECOND).await;
        }
        assert!(scope.lock().len() <= MOST);
    }
}
