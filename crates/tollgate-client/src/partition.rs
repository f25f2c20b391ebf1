//! Partitions: the requests that share the limits of a server.

use std::{collections::HashMap, sync::Arc};

use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};
use tollgate_core::sync::{Mutex, lock};

use crate::{
    advice::AdvisedBudget,
    budgets::{Budgets, Cooldown, InFlight},
};

/// The budgets of a server for one partition of requests, and the queue of the requests that wait for them.
#[derive(Debug)]
pub(crate) struct Partition {
    budgets: Mutex<Budgets>,
    /// One permit: its holder waits for the server, the others for the permit, in FIFO order.
    queue: Semaphore,
    /// Wakes the head of the queue: it may go sooner than expected.
    changed: Notify,
}

/// A request in flight. Dropping it ends the request.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit<'a> {
    partition: &'a Partition,
    in_flight: InFlight,
}

/// The head of the queue of a partition.
#[derive(Debug)]
pub(crate) struct QueueHead<'a> {
    partition: &'a Partition,
    _permit: SemaphorePermit<'a>,
}

impl Partition {
    pub(crate) fn new() -> Self {
        Self {
            budgets: Mutex::default(),
            queue: Semaphore::new(1),
            changed: Notify::new(),
        }
    }

    /// Takes one request of each budget, or nothing. The error is the instant at which the server opens, here and below.
    pub(crate) fn take(&self) -> Result<Permit<'_>, Instant> {
        let in_flight = lock(&self.budgets).take(Instant::now())?;
        Ok(Permit {
            partition: self,
            in_flight,
        })
    }

    /// The same, or `None` if the server is closed or other requests wait.
    pub(crate) fn try_acquire(&self) -> Option<Permit<'_>> {
        let _head = self.queue.try_acquire().ok()?;
        self.take().ok()
    }

    /// When the server opens again, if it is closed now.
    pub(crate) fn closed_until(&self) -> Option<Instant> {
        lock(&self.budgets).closed_until(Instant::now())
    }

    /// Waits in the queue until the server is open.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue.
    pub(crate) async fn wait(&self, deadline: Instant) -> Result<QueueHead<'_>, Instant> {
        self.opens_by(deadline)?;
        let permit = match timeout_at(deadline, self.queue.acquire()).await {
            Ok(Ok(permit)) => permit,
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => return Err(self.closed_until().unwrap_or(deadline)),
        };
        let head = QueueHead {
            partition: self,
            _permit: permit,
        };
        head.opened(deadline).await?;
        Ok(head)
    }

    /// When the server opens, if it is closed now. The error is an instant after the deadline.
    fn opens_by(&self, deadline: Instant) -> Result<Option<Instant>, Instant> {
        let now = Instant::now();
        let budgets = lock(&self.budgets);
        match budgets.closed_until(now) {
            // The response to a probe may open it sooner.
            Some(until) if until > deadline && budgets.is_probed(deadline) && now < deadline => {
                Ok(Some(deadline))
            }
            Some(until) if until > deadline => Err(until),
            until => Ok(until),
        }
    }
}

impl QueueHead<'_> {
    /// Waits until the server is open.
    pub(crate) async fn opened(&self, deadline: Instant) -> Result<(), Instant> {
        loop {
            let changed = self.partition.changed.notified();
            let Some(until) = self.partition.opens_by(deadline)? else {
                return Ok(());
            };
            // Look again in either case.
            let _ = timeout_at(until, changed).await;
        }
    }
}

impl Permit<'_> {
    /// Applies the budgets and the cooldown of the response.
    pub(crate) fn on_response(self, budgets: &[AdvisedBudget], cooldown: Option<Cooldown>) {
        let now = Instant::now();
        lock(&self.partition.budgets).on_response(&self.in_flight, budgets, cooldown, now);
        self.partition.changed.notify_one();
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        lock(&self.partition.budgets).on_end(&self.in_flight);
    }
}

/// How many partitions are kept.
const MOST: usize = 1_024;

/// Partitions by their names.
#[derive(Default)]
pub(crate) struct Partitions(Mutex<HashMap<String, Arc<Partition>>>);

impl Partitions {
    /// The partition of this name, created if it is new. If there are too many, an open one is evicted first, then the one
    /// whose cooldown ends first.
    pub(crate) fn find_or_insert(&self, name: String) -> Arc<Partition> {
        let mut partitions = lock(&self.0);
        if let Some(partition) = partitions.get(&name) {
            return Arc::clone(partition);
        }
        if partitions.len() >= MOST {
            let least = partitions
                .iter()
                .min_by_key(|(_, partition)| {
                    (partition.closed_until(), Arc::strong_count(partition))
                })
                .map(|(name, _)| name.clone());
            if let Some(least) = least {
                partitions.remove(&least);
            }
        }
        let partition = Arc::new(Partition::new());
        partitions.insert(name, Arc::clone(&partition));
        partition
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn budget(left: u64, seconds: u64) -> [AdvisedBudget; 1] {
        [AdvisedBudget {
            name: 1,
            left,
            reset: Duration::from_secs(seconds),
        }]
    }

    fn cooldown(asked: u32, jitter: u32) -> Option<Cooldown> {
        let [asked, jitter] = [asked, jitter].map(|it| it * SECOND);
        Some(Cooldown { asked, jitter })
    }

    /// A partition with this budget.
    fn after(left: u64, seconds: u64) -> Partition {
        let partition = Partition::new();
        partition
            .take()
            .unwrap()
            .on_response(&budget(left, seconds), None);
        partition
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    #[tokio::test(start_paused = true)]
    async fn a_used_up_budget_is_followed_by_one_probe() {
        let partition = after(2, 3);
        let until = Instant::now() + 3 * SECOND;
        let _permits = [partition.take().unwrap(), partition.take().unwrap()];
        assert_eq!(partition.take().unwrap_err(), until);
        tokio::time::advance(3 * SECOND).await;
        let probe = partition.take().unwrap();
        assert_eq!(partition.take().unwrap_err(), Instant::now() + SECOND);
        // It says that there are three: two others are on their way.
        probe.on_response(&budget(5, 10), None);
        let more: Vec<_> = std::iter::from_fn(|| partition.take().ok()).collect();
        assert_eq!(more.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cooldown_does_not_end_in_a_burst() {
        let partition = Partition::new();
        let rejected = partition.take().unwrap();
        rejected.on_response(&[], cooldown(7, 0));
        tokio::time::advance(7 * SECOND).await;
        let probe = partition.take().unwrap();
        assert!(partition.take().is_err());
        probe.on_response(&[], cooldown(3, 0));
        let until = Instant::now() + 3 * SECOND;
        assert_eq!(partition.closed_until(), Some(until));
        tokio::time::advance(3 * SECOND).await;
        let take = || Vec::from_iter(std::iter::from_fn(|| partition.take().ok()).take(99));
        let rounds = |number| {
            let mut sent = take();
            let rounds = Vec::from_iter((0..number).map(|_| {
                let good = std::mem::take(&mut sent).into_iter();
                good.for_each(|good| good.on_response(&[], None));
                sent = take();
                sent.len()
            }));
            (rounds, sent)
        };
        let (doubled, sent) = rounds(4);
        assert_eq!(doubled, [2, 4, 8, 16]);
        let rejected = sent.into_iter();
        rejected.for_each(|rejected| rejected.on_response(&[], cooldown(3, 0)));
        tokio::time::advance(3 * SECOND).await;
        // Fifteen were good last time.
        let (doubled, sent) = rounds(5);
        assert_eq!(doubled, [2, 4, 8, 1, 2]);
        let good = sent.into_iter();
        good.for_each(|good| good.on_response(&[], None));
        // There is room, and for a second too.
        tokio::time::advance(SECOND).await;
        partition.take().unwrap().on_response(&[], None);
        assert_eq!(take().len(), 99);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_without_a_response_is_followed_by_another() {
        let partition = after(0, 10);
        tokio::time::advance(10 * SECOND).await;
        let _hangs = partition.take().unwrap();
        assert!(partition.take().is_err());
        // Its response may come sooner than the next probe: a request waits for it as long as it may.
        let soon = Instant::now() + SECOND / 2;
        assert!(partition.wait(soon).await.is_err());
        assert_eq!(Instant::now(), soon);
        tokio::time::advance(SECOND / 2).await;
        let _second = partition.take().unwrap();
        assert!(partition.take().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_reporting_is_open() {
        let partition = after(0, 10);
        tokio::time::advance(10 * SECOND).await;
        let probe = partition.take().unwrap();
        // A slow one: another probe was sent meanwhile.
        tokio::time::advance(3 * SECOND).await;
        let _second = partition.take().unwrap();
        probe.on_response(&[], None);
        let _open = [partition.take().unwrap(), partition.take().unwrap()];
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_to_an_earlier_request_does_not_end_the_probe() {
        let partition = after(1, 10);
        let earlier = partition.take().unwrap();
        tokio::time::advance(10 * SECOND).await;
        let probe = partition.take().unwrap();
        earlier.on_response(&[], None);
        assert!(partition.take().is_err());
        probe.on_response(&[], None);
        let _open = [partition.take().unwrap(), partition.take().unwrap()];
    }

    #[tokio::test(start_paused = true)]
    async fn usage_by_other_clients_is_deducted_with_what_is_on_its_way() {
        let partition = after(10, 10);
        let [a, _b, _c] = [(); 3].map(|()| partition.take().unwrap());
        // The server has not counted the other two.
        a.on_response(&budget(5, 10), None);
        let more: Vec<_> = std::iter::from_fn(|| partition.take().ok()).collect();
        assert_eq!(more.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_budget_missing_from_a_response_stays_empty_until_its_reset() {
        let partition = Partition::new();
        let both = [partition.take().unwrap(), partition.take().unwrap()];
        let [first, second] = both;
        first.on_response(&budget(0, 10), None);
        second.on_response(&[], None);
        assert!(partition.take().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn reordered_responses_do_not_raise_the_budget() {
        let partition = after(10, 10);
        let [a, b, c] = [(); 3].map(|()| partition.take().unwrap());
        // The server has counted b, c, a.
        c.on_response(&budget(8, 10), None);
        b.on_response(&budget(9, 10), None);
        a.on_response(&budget(7, 10), None);
        let more: Vec<_> = std::iter::from_fn(|| partition.take().ok()).collect();
        assert_eq!(more.len(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn long_polls_are_not_deducted() {
        let partition = Partition::new();
        let _polls: Vec<_> = (0..100).map(|_| partition.take().unwrap()).collect();
        tokio::time::advance(5 * SECOND).await;
        partition.take().unwrap().on_response(&budget(10, 60), None);
        let more: Vec<_> = std::iter::from_fn(|| partition.take().ok()).collect();
        assert_eq!(more.len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_is_not_added_twice() {
        let partition = Partition::new();
        let start = Instant::now();
        let [first, second, third, fourth] = [(); 4].map(|()| partition.take().unwrap());
        first.on_response(&[], cooldown(50, 3));
        assert_eq!(partition.closed_until(), Some(start + 53 * SECOND));
        second.on_response(&[], cooldown(52, 5));
        assert_eq!(partition.closed_until(), Some(start + 53 * SECOND));
        third.on_response(&[], cooldown(54, 1));
        assert_eq!(partition.closed_until(), Some(start + 55 * SECOND));
        fourth.on_response(&[], cooldown(55, 4));
        assert_eq!(partition.closed_until(), Some(start + 55 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_passes_by_the_queue_when_the_server_opens() {
        let partition = after(0, 5);
        let mut waits = std::pin::pin!(partition.wait(far()));
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::future::Future::poll(waits.as_mut(), cx).is_pending());
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(partition.closed_until(), None);
        assert!(partition.try_acquire().is_none());
        drop(waits.await.unwrap());
        assert!(partition.try_acquire().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_would_be_too_long_ends_at_once_behind_others_too() {
        let partition = after(0, 50);
        let start = Instant::now();
        let mut waits = std::pin::pin!(partition.wait(far()));
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::future::Future::poll(waits.as_mut(), cx).is_pending());
        let until = start + 50 * SECOND;
        let short = partition.wait(until - SECOND).await;
        assert_eq!(short.unwrap_err(), until);
        assert_eq!(Instant::now(), start);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_leaves_the_queue() {
        let partition = after(0, 5);
        {
            let mut waits = std::pin::pin!(partition.wait(far()));
            let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(std::future::Future::poll(waits.as_mut(), cx).is_pending());
            assert_eq!(partition.queue.available_permits(), 0);
        }
        assert_eq!(partition.queue.available_permits(), 1);
        tokio::time::advance(5 * SECOND).await;
        drop(partition.take().unwrap());
        assert_eq!(lock(&partition.budgets).in_flight(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_scopes_that_hold_the_longest_are_kept() {
        let partitions = Partitions::default();
        for number in 0..1_024 {
            let partition = partitions.find_or_insert(number.to_string());
            let cooldown = (number != 7).then(|| Cooldown {
                asked: Duration::from_secs(1 + (number + 5) % 500),
                jitter: Duration::ZERO,
            });
            partition.take().unwrap().on_response(&[], cooldown);
        }
        let held = |name: &str| {
            partitions
                .find_or_insert(name.to_owned())
                .closed_until()
                .is_some()
        };
        partitions.find_or_insert("new".to_owned());
        assert_eq!(lock(&partitions.0).len(), 1_024);
        // 7 was open, so it was evicted.
        for kept in ["0", "6", "8", "499", "1023"] {
            assert!(held(kept), "{kept}");
        }
        assert!(!lock(&partitions.0).contains_key("7"));
    }

    #[test]
    fn of_open_scopes_one_without_requests_goes_first() {
        let partitions = Partitions::default();
        let used: Vec<_> = (0..1_024)
            .map(|number| partitions.find_or_insert(number.to_string()))
            .enumerate()
            .filter(|(number, _)| *number != 500)
            .collect();
        partitions.find_or_insert("new".to_owned());
        let known = lock(&partitions.0);
        assert_eq!((known.len(), used.len()), (1_024, 1_023));
        assert!(!known.contains_key("500"));
    }
}
