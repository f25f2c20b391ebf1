//! Reservations: what a request holds leaves its process, and is settled once.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::{
    Key, MAX_PERIOD, MINUTE, Quota, Reason, Rule, SECOND, StoreError, StoreErrorKind,
    types::Reservation,
};

use crate::{
    cases::blocks::block,
    quotas::every_algorithm,
    subject::{Subject, TestLimiter},
};

async fn reserve(limiter: &TestLimiter, rule: &str, cost: u64) -> String {
    let check = [limiter.check(rule, "a", cost)];
    let decision = limiter.acquire(&check).await;
    assert!(decision.is_allowed(), "{decision:?}");
    let ticket = limiter.0.ticket(&check, &decision);
    let reservation = ticket.into_reservation(MINUTE).await;
    reservation.expect("the store keeps it").to_string()
}

async fn settle(limiter: &TestLimiter, text: &str, cost: u64) -> Result<(), StoreError> {
    let ticket = limiter.0.redeem(&text.parse()?)?;
    ticket.settle(cost).await
}

fn kind<T>(result: Result<T, StoreError>) -> Option<StoreErrorKind> {
    result.err().map(|error| error.kind())
}

const GONE: Option<StoreErrorKind> = Some(StoreErrorKind::Gone);

pub async fn a_reservation_is_settled_once(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        for (reserved, cost, left) in [(6, 1, 9), (2, 5, 4), (2, 2, 2), (2, 0, 2)] {
            let text = reserve(&limiter, rule, reserved).await;
            assert_eq!(kind(settle(&limiter, &text, cost).await), None, "{quota:?}");
            limiter.settled(rule, "a", left, &quota).await;
            for again in [0, 20] {
                assert_eq!(
                    kind(settle(&limiter, &text, again).await),
                    GONE,
                    "{quota:?}"
                );
            }
            assert_eq!(limiter.left(rule, "a").await, left, "{quota:?}");
        }
    }
}

pub async fn rules_of_a_reservation_are_settled_to_costs_of_their_own(subject: &Subject) {
    let rules = every_algorithm(10).map(|quota| {
        let rule = Rule::new(quota.algorithm().name(), quota);
        rule.plan("large", quota)
    });
    let limiter = subject.limiter(rules);
    let checks =
        every_algorithm(10).map(|quota| limiter.planned(quota.algorithm().name(), "large", "a", 6));
    let decision = limiter.acquire(&checks).await;
    let ticket = limiter.0.ticket(&checks, &decision);
    let reservation = ticket.into_reservation(MINUTE).await.expect("it is kept");
    let ticket = limiter.0.redeem(&reservation).expect("it is one");
    let settled = ticket.settle_each(|rule, reserved| match rule {
        "gcra" => None,
        "sliding_log" => Some(8),
        _ => Some(reserved / 2),
    });
    assert_eq!(kind(settled.await), None);
    for quota in every_algorithm(10) {
        let rule = quota.algorithm().name();
        let left = match rule {
            "gcra" => 4,
            "sliding_log" => 2,
            _ => 7,
        };
        let check = [limiter.planned(rule, "large", "a", 0)];
        assert_eq!(
            limiter.peek(&check).await.verdicts()[0].remaining(),
            left,
            "{quota:?}"
        );
    }
}

pub async fn a_reservation_keeps_the_quota_the_id_and_the_block_of_its_check(subject: &Subject) {
    let window = |name| Rule::new(name, Quota::fixed_window(10, MAX_PERIOD));
    let limiter = subject.limiter([
        window("contract").variable_quota(),
        window("once").idempotent(10 * MINUTE),
        window("failures").block(block().count_settled()),
    ]);
    let id = Key::of(["4711"]);
    let contract = Quota::fixed_window(20, MAX_PERIOD);
    let checks = [
        limiter.with_quota("contract", contract, "a", 12),
        limiter
            .0
            .with_id(limiter.check("once", "a", 4), &id)
            .expect("it knows ids"),
        limiter.check("failures", "a", 1),
    ];
    let reserve = async || {
        let decision = limiter.acquire(&checks).await;
        assert!(decision.is_allowed(), "{decision:?}");
        let ticket = limiter.0.ticket(&checks, &decision);
        let reservation = ticket.into_reservation(MINUTE).await.expect("it is kept");
        limiter.0.redeem(&reservation).expect("it is one")
    };
    let left = async |index: usize| {
        let check = [checks[index].with_cost(0)];
        limiter.peek(&check).await.verdicts()[0].remaining()
    };
    assert_eq!(
        kind(reserve().await.settle_each(|_, _| Some(1)).await),
        None
    );
    assert_eq!((left(0).await, left(1).await), (19, 9));
    limiter
        .0
        .reset("once", &Key::of(["a"]))
        .expect("the rule")
        .await
        .expect("it is reset");
    // What comes back whole is forgotten with its id, so that it costs again; and what fails each time blocks.
    for number in 1..3 {
        let ticket = reserve().await;
        assert_eq!(left(1).await, 6, "{number}");
        let settled = ticket.settle_each(|rule, _| (rule != "failures").then_some(0));
        assert_eq!(kind(settled.await), None);
        assert_eq!((left(0).await, left(1).await), (19, 10), "{number}");
    }
    let denied = limiter.peek(&checks[2..]).await;
    assert_eq!(denied.reason(), Some(Reason::Blocked));
}

pub async fn a_text_that_was_cut_or_changed_settles_nothing(subject: &Subject) {
    let (limiter, rule, _) = subject.each(10).next().expect("there are some");
    let text = reserve(&limiter, rule, 6).await;
    for wrong in ["", "tollgate1-", "tollgate1-ä", &text[1..], "hello"] {
        let error = wrong.parse::<Reservation>().expect_err("it is none");
        assert_eq!(error.kind(), StoreErrorKind::Foreign, "{wrong}");
    }
    let begin = text.find('-').expect("the prefix ends there") + 1;
    for place in begin..text.len() {
        let other = if text.as_bytes()[place] == b'0' {
            "1"
        } else {
            "0"
        };
        let changed = format!("{}{other}{}", &text[..place], &text[place + 1..]);
        let cut = &text[..place];
        for wrong in [&*changed, cut, &format!("{text}0")] {
            let settled = settle(&limiter, wrong, 0).await;
            assert_eq!(kind(settled), Some(StoreErrorKind::Foreign), "{wrong}");
        }
    }
    assert_eq!(limiter.left(rule, "a").await, 4);
    assert_eq!(kind(settle(&limiter, &text, 0).await), None);
}

pub async fn a_reservation_of_a_rule_that_is_gone_is_gone(subject: &Subject) {
    let window = |limit| Rule::new("rows", Quota::fixed_window(limit, MAX_PERIOD));
    let first = subject.limiter([window(10), Rule::new("other", Quota::gcra(1, SECOND))]);
    let text = reserve(&first, "rows", 6).await;
    for rule in [
        Rule::new("lines", Quota::fixed_window(10, MAX_PERIOD)),
        Rule::new("rows", Quota::sliding_log(10, MAX_PERIOD)),
    ] {
        let other = subject.replacing(&[&first], [rule]).expect("a valid rule");
        assert_eq!(kind(settle(&other, &text, 0).await), GONE);
    }
    // Behind another rule, and with another limit: units that were used stay used.
    let rules = [Rule::new("first", Quota::gcra(1, SECOND)), window(20)];
    let other = subject.replacing(&[&first], rules).expect("valid rules");
    assert_eq!(kind(settle(&other, &text, 1).await), None);
    other.settled("rows", "a", 19, &"it is settled").await;
}

pub async fn a_term_that_is_none_is_refused_and_the_ticket_is_dropped(subject: &Subject) {
    let (limiter, rule, quota) = subject.each(10).next().expect("there are some");
    for term in [Duration::ZERO, MAX_PERIOD + SECOND] {
        let check = [limiter.check(rule, "a", 6)];
        let decision = limiter.acquire(&check).await;
        let ticket = limiter.0.ticket(&check, &decision).cancel_on_drop();
        let refused = ticket.into_reservation(term).await.expect_err("no term");
        assert!(
            refused.to_string().contains("take 1 ms to 3660 days"),
            "{refused}"
        );
        limiter.settled(rule, "a", 10, &quota).await;
    }
}

/// Units and slots of one client, as they add up.
struct Model {
    used: u64,
    now: u64,
    /// When each reservation ends, unless it was settled.
    open: Vec<Option<u64>>,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Reserve,
    Settle(usize, u64),
    Cancel(usize),
    Extend(usize),
    Wait,
}

const UNITS: u64 = 5;
const SLOTS: u64 = 2;
/// The units of a reservation, its term and that after an extension, and how long a wait is, in minutes.
const COST: u64 = 2;
const TERM: u64 = 10;
const EXTENDED: u64 = 25;
const WAIT: u64 = 11;

impl Model {
    fn running(&self) -> u64 {
        let open = self.open.iter().flatten();
        open.filter(|ends| **ends > self.now).count() as u64
    }

    /// Whether it is carried out.
    fn apply(&mut self, op: Op) -> bool {
        let now = self.now;
        let open = |model: &mut Self, index: usize| {
            let open = model.open[index].take();
            open.filter(|ends| *ends > now)
        };
        match op {
            Op::Wait => self.now += WAIT,
            Op::Reserve if self.used + COST > UNITS || self.running() == SLOTS => return false,
            Op::Reserve => {
                self.used += COST;
                self.open.push(Some(self.now + TERM));
            }
            Op::Cancel(index) | Op::Settle(index, _) | Op::Extend(index) => {
                if open(self, index).is_none() {
                    return false;
                }
                match op {
                    Op::Settle(_, cost) => self.used = (self.used - COST + cost).min(UNITS),
                    Op::Cancel(_) => self.used -= COST,
                    _ => self.open[index] = Some(self.now + EXTENDED),
                }
            }
        }
        true
    }
}

pub async fn every_order_of_reservations_and_settlements_adds_up(subject: &Subject) {
    every_order(subject, 4, false).await;
}

pub async fn every_order_of_reservations_settlements_and_ends_adds_up(subject: &Subject) {
    every_order(subject, 5, true).await;
}

/// Every sequence of that many steps, each with a client of its own.
async fn every_order(subject: &Subject, steps: usize, with_time: bool) {
    let rules = [
        Rule::new("at-once", Quota::concurrent(SLOTS)),
        Rule::new("rows", Quota::fixed_window(UNITS, MAX_PERIOD)),
    ];
    let limiter = subject.limiter(rules);
    let mut ops = vec![
        Op::Reserve,
        Op::Settle(0, 1),
        Op::Settle(0, 4),
        Op::Settle(1, 0),
    ];
    ops.extend([Op::Cancel(0), Op::Cancel(1), Op::Extend(0)]);
    if with_time {
        ops.extend([Op::Wait, Op::Extend(1)]);
    }
    let mut sequences: Vec<Vec<Op>> = vec![Vec::new()];
    for _ in 0..steps {
        let longer = sequences.iter().flat_map(|before| {
            let reserved = before.iter().filter(|op| matches!(op, Op::Reserve)).count();
            let fits = move |op: &&Op| match op {
                Op::Settle(index, _) | Op::Cancel(index) | Op::Extend(index) => *index < reserved,
                Op::Reserve | Op::Wait => true,
            };
            let next = ops.iter().filter(fits);
            next.map(|op| before.iter().copied().chain([*op]).collect())
        });
        sequences = longer.collect();
    }
    for (number, sequence) in sequences.iter().enumerate() {
        let mut model = Model {
            used: 0,
            now: 0,
            open: Vec::new(),
        };
        let mut texts = Vec::new();
        let who = Key::of([number as u64]);
        let check = |rule, cost| {
            let check = limiter.0.check(rule, &who).expect("a rule");
            check.with_cost(cost)
        };
        for (step, op) in sequence.iter().enumerate() {
            // A reservation that was denied has no number.
            let is_there = |index: usize| index < model.open.len();
            let told = match *op {
                Op::Wait => {
                    subject.clock().advance(MINUTE * WAIT as u32);
                    true
                }
                Op::Reserve => {
                    let checks = [check("at-once", 1), check("rows", COST)];
                    let decision = limiter.acquire(&checks).await;
                    let ticket = limiter.0.ticket(&checks, &decision);
                    if decision.is_allowed() {
                        let text = ticket.into_reservation(MINUTE * TERM as u32).await;
                        texts.push(text.expect("it is kept").to_string());
                    }
                    decision.is_allowed()
                }
                Op::Settle(index, _) | Op::Cancel(index) | Op::Extend(index)
                    if !is_there(index) =>
                {
                    continue;
                }
                Op::Settle(index, _) | Op::Cancel(index) | Op::Extend(index) => {
                    let text = texts[index].parse().expect("a reservation");
                    let answer = match (limiter.0.redeem(&text), op) {
                        (Ok(ticket), Op::Settle(_, cost)) => ticket.settle(*cost).await,
                        (Ok(ticket), Op::Cancel(_)) => ticket.cancel().await,
                        (Ok(ticket), _) => ticket.extend(MINUTE * EXTENDED as u32).await,
                        (Err(error), _) => Err(error),
                    };
                    let kind = kind(answer);
                    assert!(kind.is_none() || kind == GONE, "{kind:?}");
                    kind.is_none()
                }
            };
            let expected = model.apply(*op);
            let done = &sequence[..=step];
            assert_eq!(told, expected, "{done:?}");
            let units = UNITS - model.used;
            let free = SLOTS - model.running();
            let left = limiter.peek(&[check("rows", 0)]).await;
            assert_eq!(left.verdicts()[0].remaining(), units, "{done:?}");
            // A process returns its own slot when its request was reserved: the store may hear of it later.
            for attempt in 0.. {
                let left = limiter.peek(&[check("at-once", 0)]).await;
                let left = left.verdicts()[0].remaining();
                if left == free {
                    break;
                }
                assert!(
                    left < free && attempt < 60_000,
                    "{left} and not {free}: {done:?}"
                );
                sleep(SECOND / 1_000).await;
            }
        }
    }
}

pub async fn at_its_term_units_stay_used_and_slots_go_back(subject: &Subject) {
    let rules = [
        Rule::new("at-once", Quota::concurrent(1)),
        Rule::new("rows", Quota::fixed_window(10, MAX_PERIOD)),
    ];
    let limiter = subject.limiter(rules);
    let checks = [
        limiter.check("at-once", "a", 1),
        limiter.check("rows", "a", 6),
    ];
    let term = SECOND / 20;
    let decision = limiter.acquire(&checks).await;
    let ticket = limiter.0.ticket(&checks, &decision);
    let reservation = ticket.into_reservation(term).await.expect("it is kept");
    let ticket = limiter.0.redeem(&reservation).expect("it is one");
    subject.clock().advance(2 * term);
    sleep(2 * term).await;
    limiter
        .settled("at-once", "a", 1, &"its term has ended")
        .await;
    assert_eq!(kind(ticket.settle(1).await), GONE);
    assert_eq!(kind(ticket.extend(MINUTE).await), GONE);
    assert_eq!(limiter.left("rows", "a").await, 4);
}
