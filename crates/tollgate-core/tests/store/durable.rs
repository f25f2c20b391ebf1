//! What a journal has of durable rules, and what a memory that is new begins with.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use proptest::prelude::*;
use tokio::time::timeout;
use tollgate_conformance::{Fault, RemoteStore};
use tollgate_core::{
    Check, Clock, Consistency, DAY, Decision, Key, KeyBuf, Limiter, MINUTE, ManualClock,
    MemoryStore, OnStoreError, Pending, Quota, Reason, Rule, SECOND, Source, Ticket,
    journal::{Base, DailyUsage, Journal, Usage, Window},
    store::CreditState,
};

const START: u64 = 1_700_000_040_000_000;

fn account(key: &KeyBuf) -> String {
    let part = key.parts().next().map(|(_, part)| part.to_vec());
    String::from_utf8(part.unwrap_or_default()).expect("the keys of these tests are text")
}

fn durable(limit: u64) -> Rule {
    Rule::new("units", Quota::fixed_window(limit, MINUTE)).durable(account)
}

fn limiter(clock: &ManualClock, rule: Rule) -> Limiter {
    let store = MemoryStore::builder().clock(clock).build();
    Limiter::new(store, [rule]).expect("valid")
}

/// A ledger that has `used` of every account, and how often it was asked.
fn attach(limiter: &Limiter, used: Option<u64>) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let base = |used| Base {
        used,
        ..Base::default()
    };
    let is_new = limiter.journal().attach(100, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Pending::new(async move { used.map(base) })
    });
    assert!(is_new);
    asked
}

fn sums(journal: &Journal) -> BTreeMap<Window, i64> {
    let mut sums = BTreeMap::new();
    for Usage { window, units, .. } in journal.take(START) {
        *sums.entry(window).or_default() += units;
    }
    sums
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    /// One of the tickets, to a cost.
    Settle(usize, u64),
    Cancel(usize),
    Drop(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..30_u64).prop_map(Step::Take),
        (any::<usize>(), 0..40_u64).prop_map(|(at, cost)| Step::Settle(at, cost)),
        any::<usize>().prop_map(Step::Cancel),
        any::<usize>().prop_map(Step::Drop),
        (1..40_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn in_any_order_the_journal_has_what_the_store_counts(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let clock = ManualClock::new(START);
            let limiter = limiter(&clock, durable(100));
            attach(&limiter, Some(0));
            let check = limiter.check("units", &Key::of("acme")).expect("there is the rule");
            let mut tickets: Vec<Ticket> = Vec::new();
            let mut written = BTreeMap::new();
            for step in steps {
                let chosen = |tickets: &mut Vec<Ticket>, at: usize| {
                    let at = at.checked_rem(tickets.len())?;
                    Some(tickets.swap_remove(at))
                };
                match step {
                    Step::Take(units) => {
                        let checks = [check.with_cost(units)];
                        let decision = limiter.acquire(&checks).await;
                        tickets.push(limiter.ticket(&checks, &decision));
                    }
                    // A charge of what is not there lapses in the store, and stays in the journal.
                    Step::Settle(at, cost) if left(&limiter, check).await >= 40 => {
                        if let Some(ticket) = chosen(&mut tickets, at) {
                            ticket.settle(cost);
                        }
                    }
                    Step::Settle(..) => {}
                    Step::Cancel(at) => {
                        if let Some(ticket) = chosen(&mut tickets, at) {
                            ticket.cancel();
                        }
                    }
                    Step::Drop(at) => drop(chosen(&mut tickets, at)),
                    Step::Wait(seconds) => clock.advance(Duration::from_secs(seconds)),
                }
                for (window, units) in sums(limiter.journal()) {
                    *written.entry(window).or_insert(0) += units;
                }
                let now = Window::of(&Quota::fixed_window(1, MINUTE), Clock::from(&clock).now());
                let of_now = written.get(&now.expect("it has windows")).copied().unwrap_or(0);
                assert_eq!(of_now, 100 - i64::try_from(left(&limiter, check).await).expect("small"));
                assert!(written.values().all(|units| *units >= 0), "{written:?}");
            }
        });
    }
}

async fn left(limiter: &Limiter, check: Check) -> u64 {
    limiter.peek(&[check.with_cost(0)]).await.verdicts()[0].remaining()
}

async fn take(limiter: &Limiter, units: u64) -> Decision {
    let check = limiter.check("units", &Key::of("acme")).expect("the rule");
    limiter.acquire(&[check.with_cost(units)]).await
}

#[tokio::test]
async fn a_memory_that_is_new_begins_each_window_with_what_the_ledger_has() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock, durable(100));
    let asked = attach(&limiter, Some(70));
    assert_eq!(take(&limiter, 10).await.verdicts()[0].remaining(), 20);
    assert!(!take(&limiter, 30).await.is_allowed());
    assert_eq!(asked.load(Ordering::Relaxed), 1, "once in a window");
    clock.advance(MINUTE);
    let _ = take(&limiter, 1).await;
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

/// The plan is of a block that is over, so that its requests count under the rule's own quota.
#[tokio::test]
async fn after_the_end_of_a_block_the_ledger_says_what_was_used_before_and_hears_what_is_settled() {
    let ended = Quota::none().until(UNIX_EPOCH + SECOND);
    let limiter = limiter(
        &ManualClock::new(START),
        durable(100).plan("blocked", ended),
    );
    attach(&limiter, Some(70));
    let check = limiter.check_with_plan("units", "blocked", &Key::of("acme"));
    let checks = [check.expect("the plan").with_cost(10)];
    let decision = limiter.acquire(&checks).await;
    assert_eq!(decision.verdicts()[0].remaining(), 20);
    limiter.ticket(&checks, &decision).settle(4);
    let settled: i64 = sums(limiter.journal()).into_values().sum();
    assert_eq!((left(&limiter, checks[0]).await, settled), (26, 4));
}

/// A balance is granted by another process on the same ledger, and this one learns of it with a denial.
#[tokio::test]
async fn a_balance_that_is_brought_back_after_a_denial_takes_each_rule_once() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(&clock).build();
    let rules = [
        Rule::new("all", Quota::fixed_window(10, DAY)),
        Rule::new("units", Quota::fixed_window(1, DAY))
            .durable(account)
            .credits(),
    ];
    let limiter = Limiter::new(store, rules).expect("valid");
    let asked = AtomicUsize::new(0);
    limiter.journal().attach(100, move |_| {
        let credits = match asked.fetch_add(1, Ordering::Relaxed) {
            0 => CreditState::default(),
            _ => CreditState::of_ledger(5, START + 60_000_000, []),
        };
        Pending::new(async move {
            Some(Base {
                credits,
                ..Base::default()
            })
        })
    });
    let check = |rule| limiter.check(rule, &Key::of("acme")).expect("the rule");
    let checks = ["all", "units"].map(check);
    assert!(limiter.acquire(&checks).await.is_allowed());
    clock.advance(31 * SECOND);
    let second = limiter.acquire(&checks).await;
    assert_eq!(second.verdicts()[1].source(), Source::Credits);
    assert_eq!(left(&limiter, checks[0]).await, 8);
}

/// What becomes of a request that waits, and has not been counted as allowed yet.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_and_does_not_start_takes_nothing_off_daily_usage() {
    for gives_up in [false, true] {
        let clock = ManualClock::new(START);
        let store = MemoryStore::builder().clock(&clock).build();
        let rule = Rule::new("units", Quota::per_second(1).burst(1)).wait(9 * SECOND);
        let limiter = Limiter::new(store, [rule.daily_usage(account)]).expect("valid");
        limiter
            .journal()
            .attach(2, |_| Pending::new(async { None }));
        let checks = [limiter.check("units", &Key::of("acme")).expect("the rule")];
        let _ = limiter.acquire(&checks).await;
        let attempt = limiter.attempt(&checks);
        let waiting = attempt.wait(attempt.decide().await);
        match gives_up {
            false => drop(waiting),
            true => drop(waiting.give_up().await),
        }
        let within = timeout(SECOND / 2, limiter.acquire_within(&checks, 9 * SECOND));
        assert!(within.await.is_err(), "it still waits");
        let used = days(limiter.journal(), "acme").into_values();
        assert_eq!(used.collect::<Vec<_>>(), [(1, 0, 1)], "{gives_up}");
    }
}

/// A repeat came by before its first request got all back: the store keeps that, of the quota and of a balance.
#[tokio::test]
async fn what_stays_taken_for_a_repeat_stays_taken_in_the_journal() {
    let clock = ManualClock::new(START);
    let rule = durable(10).credits().idempotent(10 * MINUTE);
    let limiter = limiter(&clock, rule.daily_usage(account));
    attach(&limiter, Some(0));
    let (key, end) = (
        Key::of("acme"),
        UNIX_EPOCH + Duration::from_micros(START) + DAY,
    );
    let granted = limiter.grant("units", &key, 5, end, "invoice");
    let granted = granted.expect("the rule").await;
    assert_eq!(granted.expect("written").units, 5);
    let check = limiter.check("units", &key).expect("the rule");
    for (id, of_quota, of_balance) in [("first", 7, 0), ("second", 7, -4)] {
        let checks = [limiter.with_id(check.with_cost(4), &Key::of(id))];
        let checks = checks.map(|it| it.expect("it is idempotent"));
        let decision = limiter.acquire(&checks).await;
        assert!(limiter.acquire(&checks).await.is_repeat());
        limiter.ticket(&checks, &decision).cancel();
        // Another client's request is cancelled, and so is this one's without a repeat.
        let other = [limiter.check("units", &Key::of("bolt")).expect("the rule")];
        let once = [limiter.with_id(check, &Key::of([id, "once"]))];
        let once = once.map(|it| it.expect("it is idempotent"));
        for checks in [other, once] {
            let decision = limiter.acquire(&checks).await;
            limiter.ticket(&checks, &decision).cancel();
        }
        if id == "first" {
            let _ = take(&limiter, 3).await;
        }
        assert_eq!(left(&limiter, check).await, 10 - of_quota);
        let movements = limiter.journal().take_movements();
        let paid: i64 = movements.iter().map(|(it, _)| it.units).sum();
        assert_eq!(paid, of_balance, "{id}");
    }
    assert_eq!(sums(limiter.journal()).into_values().sum::<i64>(), 7);
    let used = days(limiter.journal(), "acme").into_values();
    assert_eq!(used.map(|(.., units)| units).collect::<Vec<_>>(), [11]);
}

#[tokio::test]
async fn while_the_ledger_does_not_say_what_was_used_the_rule_says_what_happens() {
    for (answer, passes) in [(OnStoreError::Deny, false), (OnStoreError::Allow, true)] {
        let limiter = limiter(
            &ManualClock::new(START),
            durable(100).on_store_error(answer),
        );
        let asked = attach(&limiter, None);
        for n in 1..3 {
            let decision = take(&limiter, 1).await;
            assert_eq!(decision.is_allowed(), passes);
            let reason = (!passes).then_some(Reason::StoreFailed);
            assert_eq!(decision.reason(), reason);
            assert_eq!(asked.load(Ordering::Relaxed), n, "it is asked again");
        }
    }
}

#[tokio::test]
async fn behind_its_bounds_a_rule_goes_on_and_counts_what_is_lost_or_denies() {
    for denies in [false, true] {
        let rule = if denies {
            durable(100).deny_unwritten()
        } else {
            durable(100)
        };
        let limiter = limiter(&ManualClock::new(START), rule);
        let journal = limiter.journal();
        journal.attach(1, |_| Pending::new(async { Some(Base::default()) }));
        assert_eq!(take(&limiter, 5).await.is_allowed(), !denies);
        let of = async |name: &'static str| {
            let check = limiter.check("units", &Key::of(name)).expect("the rule");
            limiter.acquire(&[check.with_cost(3)]).await.is_allowed()
        };
        assert_eq!(of("there-is-no-room").await, !denies);
        assert_eq!(journal.lost(), if denies { 0 } else { 3 });
    }
}

/// What a journal has of an account by day: allowed, denied and units.
fn days(journal: &Journal, account: &str) -> BTreeMap<u64, (u64, u64, i64)> {
    let all = journal.take_daily().into_iter();
    let of_account = all.filter(|it| &*it.account == account);
    of_account
        .map(|it: DailyUsage| (it.day, (it.allowed, it.denied, it.units)))
        .collect()
}

#[tokio::test]
async fn daily_usage_is_what_a_client_was_allowed_and_denied_and_settled_on_each_day() {
    // 22:14 UTC.
    let clock = ManualClock::new(START);
    let first = START - START % 86_400_000_000;
    for is_shadow in [false, true] {
        let rule = Rule::new("units", Quota::gcra(10, SECOND)).daily_usage(account);
        let rule = if is_shadow { rule.shadow() } else { rule };
        let other = Rule::new("other", Quota::gcra(30, SECOND));
        let store = MemoryStore::builder().clock(&clock).build();
        let limiter = Limiter::new(store, [rule, other]).expect("valid");
        let journal = limiter.journal();
        let _ = take(&limiter, 1).await;
        journal.attach(2, |_| Pending::new(async { None }));
        clock.advance(MINUTE);
        let check = limiter.check("units", &Key::of("acme")).expect("the rule");
        let other = limiter.check("other", &Key::of("acme")).expect("the rule");
        let checks = [check.with_cost(8), other.with_cost(8)];
        let admitted = limiter.acquire(&checks).await;
        let ticket = limiter.ticket(&checks, &admitted);
        assert_eq!(limiter.acquire(&checks).await.is_allowed(), is_shadow);
        // The other rule denies: this one has neither allowed nor denied it.
        let denied = [check, other.with_cost(30)];
        assert!(!limiter.acquire(&denied).await.is_allowed());
        clock.advance(2 * 60 * MINUTE);
        let _ = take(&limiter, 3).await;
        // Written, and settled later: what comes back is of the day on which it was taken.
        let second = first + 86_400_000_000;
        let taken = [(first, (1, 1, 8)), (second, (1, 0, 3))];
        assert_eq!(days(journal, "acme"), BTreeMap::from(taken));
        ticket.settle(2);
        let settled: &[_] = if is_shadow {
            &[]
        } else {
            &[(first, (0, 0, -6))]
        };
        assert_eq!(days(journal, "acme"), settled.iter().copied().collect());
        clock.set(START);
        // There is room for two clients, and one that is written leaves for another.
        let of = async |name: &'static str| {
            let check = limiter.check("units", &Key::of(name)).expect("the rule");
            limiter.acquire(&[check]).await
        };
        for client in ["bolt", "cobb"] {
            let _ = of(client).await;
        }
        assert_eq!(journal.lost_daily(), 1, "no place for the third");
        assert_eq!(days(journal, "bolt").len(), 1);
        let _ = of("cobb").await;
        assert_eq!((days(journal, "cobb").len(), journal.lost_daily()), (1, 1));
        // A client may send a long key, and its name takes no more memory for that.
        let long = "é".repeat(150);
        let check = limiter.check("units", &Key::of(&*long)).expect("the rule");
        let _ = limiter.acquire(&[check]).await;
        assert_eq!(days(journal, &long[..200]).len(), 1);
    }
}

#[tokio::test]
async fn accounts_share_cells_and_none_gets_the_units_of_another() {
    let limiter = limiter(&ManualClock::new(START), durable(100));
    let journal = limiter.journal();
    journal.attach(30_000, |_| Pending::new(async { Some(Base::default()) }));
    let (mut taken, mut noted) = (BTreeMap::new(), BTreeMap::new());
    for n in 0..120_000_u32 {
        // More than there are cells, and a few often.
        let name = if n % 2 == 0 {
            n * 7_919 % 40_000
        } else {
            n % 10
        };
        let name = name.to_string();
        let check = limiter.check("units", &Key::of(&*name)).expect("the rule");
        if limiter.acquire(&[check]).await.is_allowed() {
            *taken.entry(name).or_insert(0) += 1;
        }
        if n % 30_000 == 29_999 {
            for usage in journal.take(START) {
                let account = usage.account.expect("its key was there").to_string();
                *noted.entry(account).or_insert(0) += usage.units;
            }
        }
    }
    assert_eq!(noted, taken);
}

#[tokio::test]
async fn windows_that_wait_to_be_written_take_the_room_of_accounts() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock, durable(100));
    let journal = limiter.journal();
    journal.attach(3, |_| Pending::new(async { Some(Base::default()) }));
    for _ in 0..5 {
        assert!(take(&limiter, 1).await.is_allowed());
        clock.advance(MINUTE);
    }
    assert_eq!((journal.lost(), sums(journal).len()), (2, 3));
}

#[tokio::test]
async fn what_passes_while_the_store_fails_is_settled_in_the_journal_alone() {
    let store = RemoteStore::new(MemoryStore::new()).faults(|_| Some(Fault::Refused));
    let limiter = Limiter::new(store, [durable(100)]).expect("valid");
    attach(&limiter, Some(0));
    let check = limiter.check("units", &Key::of("acme")).expect("the rule");
    let checks = [check.with_cost(10)];
    // A ledger looks in between.
    assert_eq!(limiter.journal().take(Clock::system().now()), []);
    let decision = limiter.acquire(&checks).await;
    assert!(decision.is_allowed());
    limiter.ticket(&checks, &decision).settle(25);
    let taken = limiter.journal().take(START);
    assert!(taken.iter().all(|it| it.account.as_deref() == Some("acme")));
    assert_eq!(taken.iter().map(|it| it.units).sum::<i64>(), 25);
}

#[test]
fn only_windows_have_accounts() {
    let refused = |rule: Rule| {
        let error = Limiter::new(MemoryStore::new(), [rule.durable(account)]);
        error.expect_err("it is refused").to_string()
    };
    let message = refused(Rule::new("bucket", Quota::gcra(10, MINUTE)));
    assert!(message.contains("Quota::calendar"), "{message}");
    let eventual = Consistency::Eventual {
        interval: SECOND,
        max_unreported: 1,
    };
    let window = Quota::fixed_window(10, MINUTE);
    let message = refused(Rule::new("window", window).consistency(eventual));
    assert!(message.contains("Consistency::Leased"), "{message}");
}
