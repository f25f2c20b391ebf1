//! Slots before a Redis that the test plays, on clocks that stand still.

#[cfg(feature = "metrics")]
mod metered;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tollgate_core::{
    Check, Decision, Key, Limiter, ManualClock, OnStoreError, Quota, Reason, Rule, SECOND, Ticket,
};

use crate::{
    connection::stream::memory,
    keys::keys::Keys,
    store::redis_store::{RedisStore, tests::fill_set_of},
};

const NOW: u64 = 1_700_000_000_000_000;
const PATH: &str = "/slots";

/// What is said to a message about slots, by how many there were before.
type Says = dyn Fn(i64) -> [i64; 3] + Send;

/// A Redis, and how many messages about slots it has heard.
struct Redis {
    says: Arc<Mutex<Box<Says>>>,
    is_silent: Arc<AtomicBool>,
    heard: Arc<AtomicUsize>,
}

/// The grant with this number; no other slot is free.
fn granted(number: i64) -> [i64; 3] {
    [-4 - number, 0, 15_000_000]
}

impl Redis {
    fn start(answer: [i64; 3]) -> Self {
        let says: Arc<Mutex<Box<Says>>> = Arc::new(Mutex::new(Box::new(move |_| answer)));
        let heard = Arc::new(AtomicUsize::new(0));
        let is_silent = Arc::new(AtomicBool::new(false));
        let silence = Arc::clone(&is_silent);
        let (answers, count) = (Arc::clone(&says), Arc::clone(&heard));
        memory::play(PATH, move |words| {
            let keys: usize = words[2].parse().expect("a number of keys");
            // The command, the script, the number of the keys, and what the messages have in common.
            let messages = words.len() - 4 - keys;
            let before = count.fetch_add(messages, Ordering::Relaxed);
            if silence.load(Ordering::Relaxed) {
                return String::new();
            }
            let mut text = format!("*{}\r\n:{NOW}\r\n", 1 + 3 * messages);
            for number in before..before + messages {
                for integer in answers.lock().unwrap()(number as i64) {
                    text += &format!(":{integer}\r\n");
                }
            }
            text
        });
        Self {
            says,
            is_silent,
            heard,
        }
    }

    fn answers(&self, answer: [i64; 3]) {
        self.says(move |_| answer);
    }

    fn says(&self, says: impl Fn(i64) -> [i64; 3] + Send + 'static) {
        *self.says.lock().unwrap() = Box::new(says);
    }

    /// Whether it answers nothing more, although it has heard it.
    fn is_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }

    fn heard(&self) -> usize {
        self.heard.load(Ordering::Relaxed)
    }
}

fn exact(name: &str, limit: u64) -> Rule {
    Rule::new(name, Quota::concurrent(limit)).on_store_error(OnStoreError::Deny)
}

/// A store at this path, whose clock stands still.
fn store(path: &str, clock: &ManualClock) -> RedisStore {
    RedisStore::builder(format!("unix://{path}"), "shop", Keys::plain())
        .caller_clock(clock, SECOND)
        .without_heartbeats()
        .connect()
        .expect("a valid address and a runtime")
}

async fn limiter(rules: impl IntoIterator<Item = Rule>) -> (RedisStore, Limiter) {
    limiter_by(&ManualClock::new(NOW), rules).await
}

async fn limiter_by(
    clock: &ManualClock,
    rules: impl IntoIterator<Item = Rule>,
) -> (RedisStore, Limiter) {
    let store = store(PATH, clock);
    store.connected().await;
    let limiter = Limiter::new(store.clone(), rules).expect("valid rules");
    (store, limiter)
}

fn check(limiter: &Limiter, rule: &str, key: &str) -> Check {
    limiter.check(rule, &Key::of([key])).expect("the rule")
}

/// The decision, if it is there without Redis.
fn at_once(limiter: &Limiter, checks: &[Check]) -> Option<Decision> {
    limiter.acquire(checks).ready()
}

/// Polls once.
async fn is_pending(mut future: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// How long it takes until Redis knows of all that has ended.
async fn flushed(store: &RedisStore) -> Duration {
    let began = Instant::now();
    store.flush(20 * SECOND).await;
    began.elapsed()
}

async fn start(limiter: &Limiter, checks: &[Check]) -> Ticket {
    let decision = limiter.acquire(checks).await;
    assert!(decision.is_allowed(), "{decision:?}");
    limiter.ticket(checks, &decision)
}

#[tokio::test(start_paused = true)]
async fn a_request_without_room_for_its_second_slot_keeps_no_place_for_the_first() {
    let store = store("/nowhere", &ManualClock::new(NOW));
    let limiter = Limiter::new(store.clone(), [exact("a", 1), exact("b", 1)]).expect("valid rules");
    let both = ["a", "b"].map(|rule| check(&limiter, rule, "acme"));
    fill_set_of(&store, "b", &both[1]);
    let failed = at_once(&limiter, &both).expect("there is room for one of them");
    assert_eq!(failed.reason(), Some(Reason::StoreFailed));
    assert!(at_once(&limiter, &both[..1]).is_none(), "there still is");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_when_redis_may_have_forgotten_it_is_not_used() {
    let redis = Redis::start(granted(0));
    redis.says(|number| granted(100 + number));
    let clock = ManualClock::new(NOW);
    let (store, limiter) = limiter_by(&clock, [exact("a", 9)]).await;
    let checks = [check(&limiter, "a", "acme")];
    let ticket = start(&limiter, &checks).await;
    assert_eq!(ticket.slot_number("a"), Some(100));
    let mut late = pin!(limiter.acquire(&checks).into_future());
    assert!(is_pending(late.as_mut()).await);
    clock.advance(15 * SECOND);
    let decision = late.await;
    assert!(decision.is_allowed());
    let again = limiter.ticket(&checks, &decision);
    assert!(again.slot_number("a") > Some(101), "{again:?}");
    drop((ticket, again));
    assert!(flushed(&store).await < 20 * SECOND);
}

/// How long a request waits for a slot that comes back after this time.
async fn waits(limiter: &Limiter, checks: &[Check], until: impl Future) -> Duration {
    let began = Instant::now();
    let waits = async {
        let waited = limiter.acquire_within(checks, 20 * SECOND).await;
        let decision = waited.expect("there is room in the queue");
        assert!(decision.is_allowed(), "{decision:?}");
        drop(limiter.ticket(checks, &decision));
        began.elapsed()
    };
    tokio::join!(waits, until).0
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_slot_gets_the_one_that_its_process_returns() {
    const AFTER: Duration = Duration::from_millis(50);
    let redis = Redis::start(granted(1));
    let (_store, limiter) = limiter([exact("a", 1).wait(20 * SECOND)]).await;
    let checks = [check(&limiter, "a", "acme")];
    let ticket = start(&limiter, &checks).await;
    redis.answers([0, 0, 0]);
    let returned = async {
        sleep(AFTER).await;
        redis.answers(granted(1));
        drop(ticket);
    };
    // It looks by itself after twice that time.
    assert_eq!(waits(&limiter, &checks, returned).await, AFTER);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_slot_looks_for_those_that_other_processes_return() {
    let redis = Redis::start([0, 0, 0]);
    let (_store, limiter) = limiter([exact("a", 1).wait(20 * SECOND)]).await;
    let checks = [check(&limiter, "a", "acme")];
    let returned = async {
        sleep(Duration::from_millis(250)).await;
        redis.answers(granted(1));
    };
    // It looks every 100 ms.
    assert_eq!(
        waits(&limiter, &checks, returned).await,
        Duration::from_millis(300)
    );
}

#[tokio::test(start_paused = true)]
async fn a_flush_waits_until_redis_has_heard_of_slots_that_are_free() {
    let redis = Redis::start(granted(1));
    let (store, limiter) = limiter([exact("a", 1)]).await;
    drop(start(&limiter, &[check(&limiter, "a", "acme")]).await);
    redis.answers(granted(0));
    assert_eq!(redis.heard(), 1);
    assert!(flushed(&store).await < 20 * SECOND);
    assert_eq!(redis.heard(), 2);
}

#[tokio::test(start_paused = true)]
async fn slots_that_redis_may_have_granted_are_reported_as_not_in_use() {
    let (redis, clock) = (Redis::start(granted(0)), ManualClock::new(NOW));
    let (store, limiter) = limiter_by(&clock, [exact("a", 1)]).await;
    redis.is_silent(true);
    let failed = limiter.acquire(&[check(&limiter, "a", "acme")]).await;
    assert_eq!(failed.reason(), Some(Reason::StoreFailed));
    // By then there is another connection.
    sleep(SECOND).await;
    redis.is_silent(false);
    clock.advance(SECOND);
    let before = redis.heard();
    assert!(flushed(&store).await < 20 * SECOND);
    assert!(redis.heard() > before);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_lost_is_sent_again_long_before_the_next_one() {
    let clock = ManualClock::new(NOW);
    let redis = Redis::start(granted(1));
    let (_store, limiter) = limiter_by(&clock, [exact("a", 1)]).await;
    let _ticket = start(&limiter, &[check(&limiter, "a", "acme")]).await;
    redis.is_silent(true);
    clock.advance(5 * SECOND);
    sleep(6 * SECOND).await;
    redis.is_silent(false);
    let before = redis.heard();
    clock.advance(2 * SECOND);
    sleep(2 * SECOND).await;
    assert!(redis.heard() > before);
}

/// Tokio's clock stands still while the machine sleeps, and that of the process goes on.
async fn machine_sleeps(clock: &ManualClock) {
    // The reporter sleeps until it renews.
    sleep(SECOND).await;
    clock.advance(10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn no_slot_waits_for_a_reporter_that_sleeps_on_after_the_machine_slept() {
    let (redis, clock) = (Redis::start(granted(1)), ManualClock::new(NOW));
    let (store, limiter) = limiter_by(&clock, [exact("a", 1)]).await;
    let ticket = start(&limiter, &[check(&limiter, "a", "acme")]).await;
    machine_sleeps(&clock).await;
    redis.answers(granted(0));
    drop(ticket);
    // It looks every few milliseconds.
    assert!(flushed(&store).await < SECOND);
}
