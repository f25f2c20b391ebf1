//! What a service holds while another server takes over: slots that run, and places in a queue.
//!
//! Two processes hold all slots of a rule each half, and requests wait in a queue. Then another server takes over:
//!
//! ```text
//!                      it has the states              it has lost them
//! slots                none starts                    at most as many start as run, and none once it was told of those
//! queue                the next is behind the last    it begins anew
//! the last gives up    its units go back              nothing goes back
//! those who wait       start when they were told to   start when they were told to
//! in the end           all slots are free             all slots are free
//! ```

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_core::{
    Check, Decision, Key, Limiter, MINUTE, OnStoreError, Quota, Reason, Rule, SECOND, Tick, Ticket,
};
use tollgate_redis::{BreakerState, Keys, Partition, RedisStore};
use tollgate_test_servers::eventually::eventually;

/// Slots of the rule with this name.
const SLOTS: u64 = 4;
/// Units of the queue, one a second: it is longer than any fail-over.
const BURST: u64 = 100;
const UNIT: Tick = 1_000_000;
/// Tasks that wait.
const WAITING: u64 = 3;
/// For each call: what is lost here is not what is slow.
const PATIENT: Duration = Duration::from_secs(20);
const LONG: Duration = MINUTE.saturating_mul(60);

/// A process, as Redis sees it.
#[derive(Debug)]
struct Process {
    store: RedisStore,
    slots: Limiter,
    queue: Limiter,
}

impl Process {
    async fn start(address: &str, namespace: &str) -> Self {
        let store = RedisStore::builder(address, namespace, Keys::plain())
            .partition(Partition::One)
            .deadline(PATIENT)
            .connect()
            .expect("a valid address");
        store.connected().await;
        let limiter = |rule: Rule| {
            let rule = rule.on_store_error(OnStoreError::Deny);
            Limiter::new(store.clone(), [rule]).expect("a valid rule")
        };
        let slots = limiter(Rule::new("slots", Quota::concurrent(SLOTS)));
        let queue = Rule::new("queue", Quota::gcra(1, SECOND).burst(BURST));
        let queue = limiter(queue.wait(LONG));
        Self {
            store,
            slots,
            queue,
        }
    }

    fn slots(&self, slots: u64) -> [Check; 1] {
        let check = self.slots.check("slots", &Key::shared());
        [check.expect("the rule").with_cost(slots)]
    }

    fn units(&self, units: u64) -> [Check; 1] {
        let check = self.queue.check("queue", &Key::shared());
        [check.expect("the rule").with_cost(units)]
    }

    /// Starts a request, or is denied by the store.
    async fn start_one(&self) -> Option<Ticket> {
        let checks = self.slots(1);
        let decision = decided(&self.slots, &checks).await;
        if !decision.is_allowed() {
            assert_eq!(decision.reason(), Some(Reason::Slots), "{decision:?}");
            return None;
        }
        Some(self.slots.ticket(&checks, &decision))
    }

    async fn free_slots(&self) -> u64 {
        let looked = self.slots.peek(&self.slots(0)).await;
        looked.verdicts()[0].remaining()
    }

    /// When the last unit of the queue will have come.
    async fn end_of_queue(&self) -> Tick {
        let look = self.units(0);
        eventually("the queue is seen", || async {
            let looked = self.queue.peek(&look).await;
            let verdict = looked.verdicts()[0];
            let end = looked.at() + verdict.reset_after_ticks();
            verdict.has_numbers().then_some(end)
        })
        .await
    }
}

/// What the store decides, once it does.
async fn decided(limiter: &Limiter, checks: &[Check]) -> Decision {
    eventually("the store decides", || async {
        let decision = limiter.acquire(checks).await;
        let failed = decision.reason() == Some(Reason::StoreFailed);
        (!failed).then_some(decision)
    })
    .await
}

/// What two processes hold.
#[derive(Debug)]
pub struct Held {
    place: [String; 2],
    processes: [Process; 2],
    running: Vec<Ticket>,
    waiting: JoinSet<Decision>,
    /// When the queue began.
    began: Tick,
    /// The last one in the queue.
    last: Decision,
}

impl Held {
    /// Starts both processes, and lets them take all slots and queue up.
    ///
    /// # Panics
    ///
    /// The server does not let them.
    pub async fn start(address: &str, namespace: &str) -> Self {
        let start = || Process::start(address, namespace);
        let processes = [start().await, start().await];
        let mut running = Vec::new();
        for slot in 0..SLOTS {
            let process = &processes[(slot % 2) as usize];
            running.push(eventually("a slot is free", || process.start_one()).await);
        }
        let [here, there] = &processes;
        let began = decided(&here.queue, &here.units(BURST)).await.at();
        let mut waiting = JoinSet::new();
        for process in processes.iter().cycle().take(WAITING as usize) {
            let (queue, check) = (process.queue.clone(), process.units(1));
            waiting.spawn(async move {
                let decision = queue.acquire_within(&check, LONG).await;
                decision.expect("there is room in the queue")
            });
        }
        let end = began + (BURST + WAITING) * UNIT;
        eventually("all have their places", || async {
            (here.end_of_queue().await == end).then_some(())
        })
        .await;
        let last = decided(&there.queue, &there.units(BURST)).await;
        assert_eq!(last.at() + last.delay().as_micros() as Tick, end);
        let held = Self {
            place: [address, namespace].map(str::to_owned),
            processes,
            running,
            waiting,
            began,
            last,
        };
        held.nothing_starts().await;
        held
    }

    async fn nothing_starts(&self) {
        for process in &self.processes {
            assert!(process.start_one().await.is_none());
        }
    }

    /// The last one in the queue gives up.
    fn last_gives_up(&self) {
        let [_, there] = &self.processes;
        let place = there.queue.ticket(&there.units(BURST), &self.last);
        place.cancel();
    }

    /// The new server has all of it.
    ///
    /// # Panics
    ///
    /// It lacks something.
    pub async fn survived(self) {
        self.nothing_starts().await;
        let there = &self.processes[1];
        let before_last = self.began + (BURST + WAITING) * UNIT;
        assert_eq!(there.end_of_queue().await, before_last + BURST * UNIT);
        // A breaker that lets through a part of the calls may keep the settlement, and nothing sends it again.
        eventually("the breaker is closed", || async {
            (there.store.breaker() == BreakerState::Closed).then_some(())
        })
        .await;
        self.last_gives_up();
        eventually("its units go back", || async {
            (there.end_of_queue().await == before_last).then_some(())
        })
        .await;
        assert!(!self.running.iter().any(Ticket::is_outlived));
        self.ends().await;
    }

    /// The new server has nothing of it.
    ///
    /// # Panics
    ///
    /// It has something, or more starts than may.
    pub async fn was_lost(mut self) {
        let mut started = Vec::new();
        for process in &self.processes {
            // It says what it runs: half of the slots.
            while let Some(ticket) = process.start_one().await {
                started.push(ticket);
            }
        }
        assert!(started.len() as u64 <= SLOTS / 2, "{}", started.len());
        // All of them are known now.
        self.nothing_starts().await;
        eventually("those that ran know", || async {
            let mut running = self.running.iter();
            running.all(Ticket::is_outlived).then_some(())
        })
        .await;
        self.running.append(&mut started);

        let there = &self.processes[1];
        let anew = decided(&there.queue, &there.units(BURST)).await;
        assert!(anew.is_allowed() && anew.delay().is_zero(), "{anew:?}");
        self.last_gives_up();
        assert_eq!(there.store.flush(PATIENT).await, 0);
        assert_eq!(there.end_of_queue().await, anew.at() + BURST * UNIT);
        self.ends().await;
    }

    /// All start that wait, all that runs ends, and nothing is left of it.
    async fn ends(mut self) {
        self.running.clear();
        let mut due = Vec::new();
        while let Some(started) = self.waiting.join_next().await {
            let started = started.expect("it starts");
            assert!(started.is_allowed(), "{started:?}");
            due.push(started.at() + started.waited().as_micros() as Tick);
        }
        due.sort_unstable();
        let places: Vec<_> = (1..=WAITING).map(|n| self.began + n * UNIT).collect();
        assert_eq!(due, places);
        for process in &self.processes {
            assert_eq!(process.store.flush(PATIENT).await, 0);
        }
        let [address, namespace] = &self.place;
        let other = Process::start(address, namespace).await;
        eventually("no slot is in use", || async {
            (other.free_slots().await == SLOTS).then_some(())
        })
        .await;
    }
}
