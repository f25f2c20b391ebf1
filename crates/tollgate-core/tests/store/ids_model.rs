//! Ids of requests: every order and repetition of requests, refunds and time, against a plain count; and floods of ids.

use std::time::Duration;

use tollgate_core::{
    Decision, Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule, RuleErrorKind,
};

use crate::{LONG, at_once, check, left};

const LIMIT: u64 = 2;
const FREE: u8 = 2;
const PERIOD: u64 = 2;

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Request(&'static str),
    /// The request that came first of those that are not settled gets all back; or the last one.
    RefundFirst,
    RefundLast,
    Time,
}

const STEPS: [Step; 5] = [
    Step::Request("a"),
    Step::Request("b"),
    Step::RefundFirst,
    Step::RefundLast,
    Step::Time,
];

/// A request that was let through.
#[derive(Clone, Debug)]
struct Admitted {
    id: &'static str,
    at: u64,
    pays: bool,
}

/// What is to be true, counted without stores.
#[derive(Clone, Debug, Default)]
struct Oracle {
    now: u64,
    used: u64,
    /// By id: when it was first admitted, and how often it was repeated since.
    known: Vec<(&'static str, u64, u8)>,
    /// Requests that were let through and have not got all of their units back.
    passed: u64,
}

impl Oracle {
    /// Whether a request passes, and whether it pays.
    fn request(&mut self, id: &'static str) -> (bool, bool) {
        self.known.retain(|(_, at, _)| at + PERIOD > self.now);
        let known = self.known.iter_mut().find(|known| known.0 == id);
        if let Some((.., repeats)) = known.filter(|known| known.2 < FREE) {
            *repeats += 1;
            self.passed += 1;
            return (true, false);
        }
        if self.used == LIMIT {
            return (false, false);
        }
        if self.known.iter().all(|known| known.0 != id) {
            self.known.push((id, self.now, 0));
        }
        self.used += 1;
        self.passed += 1;
        (true, true)
    }

    fn refund(&mut self, request: &Admitted) {
        if !request.pays || request.at + PERIOD <= self.now {
            return;
        }
        self.known.retain(|(_, at, _)| at + PERIOD > self.now);
        let is_it = |known: &(&str, u64, u8)| known.0 == request.id && known.1 <= request.at;
        let place = self.known.iter().position(is_it);
        if place.is_some_and(|place| self.known[place].2 > 0) {
            return;
        }
        place.map(|place| self.known.remove(place));
        self.used -= 1;
        self.passed -= 1;
    }
}

fn identified(limiter: &Limiter, who: &str, id: &str) -> tollgate_core::Check {
    let check = limiter.with_id(check(limiter, "rule", who, 1), &Key::of(id));
    check.expect("the rule is idempotent")
}

/// Plays these steps, and compares after each.
fn play(limiter: &Limiter, clock: &ManualClock, steps: &[Step]) {
    let mut oracle = Oracle::default();
    let mut admitted: Vec<(Admitted, Decision)> = Vec::new();
    for step in steps {
        match step {
            Step::Request(id) => {
                let decision = at_once(limiter.acquire(&[identified(limiter, "who", id)]));
                let (passes, pays) = oracle.request(id);
                let is = (decision.is_allowed(), decision.is_repeat());
                assert_eq!(is, (passes, passes && !pays), "{steps:?}");
                let (id, at) = (*id, oracle.now);
                if passes {
                    admitted.push((Admitted { id, at, pays }, decision));
                }
            }
            Step::RefundFirst | Step::RefundLast => {
                let place = match step {
                    Step::RefundFirst => 0,
                    _ => admitted.len().saturating_sub(1),
                };
                if place < admitted.len() {
                    let (request, decision) = admitted.remove(place);
                    oracle.refund(&request);
                    let check = identified(limiter, "who", request.id);
                    limiter.ticket(&[check], &decision).cancel();
                }
            }
            Step::Time => {
                oracle.now += 1;
                clock.advance(Duration::from_micros(1));
            }
        }
        assert_eq!(
            left(limiter, "rule", "who"),
            LIMIT - oracle.used,
            "{steps:?}"
        );
        // No id lets more through than it may, whatever comes back.
        let most = oracle.used * u64::from(FREE + 1);
        assert!(oracle.passed <= most, "{oracle:?} after {steps:?}");
    }
}

#[test]
fn every_order_of_requests_refunds_and_time_gives_the_count_of_the_oracle() {
    const DEPTH: u32 = 7;
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = Rule::new("rule", Quota::fixed_window(LIMIT, LONG));
    let rule = rule
        .idempotent(Duration::from_micros(PERIOD))
        .free_repeats(FREE);
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    for number in 0..STEPS.len().pow(DEPTH) {
        let step = |place| STEPS[number / STEPS.len().pow(place) % STEPS.len()];
        play(&limiter, &clock, &(0..DEPTH).map(step).collect::<Vec<_>>());
        let reset = limiter.reset("rule", &Key::of(["who"])).expect("the rule");
        assert!(at_once(reset).is_ok());
    }
}

#[test]
fn a_reservation_that_is_cancelled_forgets_the_id_of_its_request_and_a_repeat_reserves_nothing() {
    let rule = Rule::new("rule", Quota::fixed_window(LIMIT, LONG)).idempotent(MINUTE);
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule");
    let check = identified(&limiter, "who", "a");
    let reserve = || {
        let decision = at_once(limiter.acquire(&[check]));
        let text = at_once(limiter.ticket(&[check], &decision).into_reservation(MINUTE));
        let ticket = limiter
            .redeem(&text.expect("it is written"))
            .expect("it is open");
        (decision.is_repeat(), ticket)
    };
    let (is_repeat, ticket) = reserve();
    assert!(!is_repeat && at_once(ticket.cancel()).is_ok());
    assert_eq!(left(&limiter, "rule", "who"), LIMIT);
    assert!(!reserve().0);
    let (is_repeat, ticket) = reserve();
    assert!(is_repeat && at_once(ticket.settle(2)).is_ok());
    assert_eq!(left(&limiter, "rule", "who"), LIMIT - 1);
}

#[test]
fn a_flood_of_ids_stays_in_its_part_of_the_memory_and_frees_no_client() {
    const BYTES: usize = 4 << 20;
    let store = MemoryStore::builder().bytes_per_rule(BYTES).build();
    let rule = Rule::new("rule", Quota::fixed_window(1_000_000, LONG)).idempotent(10 * MINUTE);
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    let usage = || limiter.rule_store().usage(0).expect("memory knows");
    let request = |who: &str, id: u64| {
        let check = identified(&limiter, who, &id.to_string());
        assert!(at_once(limiter.acquire(&[check])).is_allowed());
    };
    let before = usage().bytes;
    for id in 0..1_000_000 {
        request("one", id);
    }
    assert!(usage().bytes < before + 8_192, "{:?}", usage());
    assert_eq!((usage().keys, usage().evicted_live), (1, 0));
    for client in 0..20_000_u64 {
        request(&client.to_string(), client);
    }
    assert!(usage().bytes <= BYTES as u64, "{:?}", usage());
    // Ids had to go, and no state of a client did.
    assert!(usage().evicted_live > 0, "{:?}", usage());
    for client in 0..20_000_u64 {
        assert_eq!(left(&limiter, "rule", &client.to_string()), 999_999);
    }
}

#[test]
fn ids_that_cannot_work_are_refused_with_what_would() {
    let rule = |quota| Rule::new("rule", quota);
    let (slots, rate) = (Quota::concurrent(3), Quota::gcra(5, MINUTE));
    for (rule, says) in [
        (rule(slots).idempotent(MINUTE), "a second slot"),
        (
            rule(rate).wait(MINUTE).idempotent(MINUTE),
            "leave wait() out",
        ),
        (
            rule(Quota::unlimited()).idempotent(MINUTE),
            "without a limit",
        ),
        (rule(rate).idempotent(Duration::ZERO), "10 * MINUTE"),
        (rule(rate).idempotent(MINUTE).free_repeats(0), "at least 1"),
    ] {
        let wrong = Limiter::new(MemoryStore::new(), [rule]).expect_err(says);
        assert_eq!(wrong.kind(), RuleErrorKind::Idempotency);
        assert!(wrong.to_string().contains(says), "{wrong}");
    }
    let limiter = Limiter::new(MemoryStore::new(), [rule(rate)]).expect("a valid rule");
    let check = check(&limiter, "rule", "who", 1);
    let wrong = limiter
        .with_id(check, &Key::of("a"))
        .expect_err("the rule knows none");
    assert!(wrong.to_string().contains("add idempotent("), "{wrong}");
}
