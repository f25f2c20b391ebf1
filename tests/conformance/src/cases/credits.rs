//! Balances next to a quota.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tollgate_core::{
    AlgorithmKind, Consistency, Decision, HOUR, Key, MINUTE, Quota, Retry, Rule, RuleSet, Source,
    StoreErrorKind, Ticket, store::MOST_GRANTS, types::Balance,
};

use crate::{
    quotas::every_algorithm,
    subject::{Subject, TestLimiter},
};

/// In `after` by the clock of the case.
fn until(subject: &Subject, after: Duration) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(subject.clock().now()) + after
}

impl TestLimiter {
    async fn grant(&self, rule: &str, units: u64, until: SystemTime, id: &str) -> Balance {
        let granted = self.0.grant(rule, &Key::of(["a"]), units, until, id);
        granted.expect("the rule").await.expect("a grant")
    }

    async fn revoke(&self, rule: &str, id: &str) -> Balance {
        let revoked = self.0.revoke(rule, &Key::of(["a"]), id);
        revoked.expect("the rule").await.expect("a balance")
    }

    async fn balance(&self, rule: &str) -> u64 {
        let balance = self.0.balance(rule, &Key::of(["a"]));
        balance.expect("the rule").await.expect("a balance").units
    }

    /// Waits until a settlement, which runs in the background, has left `units`.
    async fn has_balance(&self, rule: &str, units: u64) {
        let has = async {
            while self.balance(rule).await != units {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let has = timeout(Duration::from_secs(60), has).await;
        assert!(
            has.is_ok(),
            "{rule} has {} and not {units}",
            self.balance(rule).await
        );
    }

    async fn ticket(&self, rule: &str, cost: u64) -> Ticket {
        let check = [self.check(rule, "a", cost)];
        let decision = self.acquire(&check).await;
        assert!(decision.is_allowed(), "{decision:?}");
        self.0.ticket(&check, &decision)
    }
}

/// A limiter of one rule with credits for each algorithm.
fn each(subject: &Subject, limit: u64) -> impl Iterator<Item = (TestLimiter, &'static str)> {
    every_algorithm(limit).into_iter().map(|quota| {
        let name = quota.algorithm().name();
        (subject.limiter([Rule::new(name, quota).credits()]), name)
    })
}

fn source(decision: &Decision) -> (bool, Source) {
    (decision.is_allowed(), decision.verdicts()[0].source())
}

pub async fn a_cost_is_taken_from_the_quota_or_else_from_the_balance(subject: &Subject) {
    let end = until(subject, HOUR);
    for (limiter, rule) in each(subject, 10) {
        assert_eq!(limiter.balance(rule).await, 0);
        assert!(limiter.took(rule, "a", 6).await);
        let denied = limiter.take(rule, "a", 6).await;
        assert!(!denied.is_allowed(), "{rule}");
        // A denial that was remembered does not hide the balance.
        assert_eq!(limiter.grant(rule, 8, end, "one").await.units, 8);
        let look = [limiter.check(rule, "a", 6)];
        assert_eq!(source(&limiter.peek(&look).await), (true, Source::Credits));
        let taken = limiter.take(rule, "a", 6).await;
        assert_eq!(source(&taken), (true, Source::Credits), "{rule}");
        let verdict = taken.verdicts()[0];
        let numbers = (verdict.remaining(), verdict.retry());
        assert_eq!(numbers, (4, denied.verdicts()[0].retry()), "{rule}");
        // Neither place has five, though both together have.
        assert!(!limiter.took(rule, "a", 5).await, "{rule}");
        assert_eq!(
            source(&limiter.take(rule, "a", 4).await),
            (true, Source::Store)
        );
        assert_eq!(
            source(&limiter.take(rule, "a", 2).await),
            (true, Source::Credits)
        );
        assert!(!limiter.took(rule, "a", 1).await, "{rule}");
        assert!(
            limiter.took(rule, "a", 0).await,
            "what costs nothing passes"
        );
        assert_eq!(limiter.balance(rule).await, 0);
        // A cost above the limit never fits the quota.
        assert_eq!(limiter.take(rule, "a", 12).await.retry(), Retry::Never);
        limiter.grant(rule, 12, end, "two").await;
        assert_eq!(
            source(&limiter.take(rule, "a", 12).await),
            (true, Source::Credits)
        );
        assert!(limiter.took(rule, "b", 10).await && !limiter.took(rule, "b", 1).await);
    }
}

pub async fn what_comes_back_goes_where_it_was_taken(subject: &Subject) {
    let end = until(subject, HOUR);
    for (limiter, rule) in each(subject, 10) {
        limiter.grant(rule, 20, end, "one").await;
        let of_quota = limiter.ticket(rule, 7).await;
        let of_balance = [limiter.ticket(rule, 8).await, limiter.ticket(rule, 8).await];
        let [first, second] = of_balance;
        first.cancel();
        limiter.has_balance(rule, 12).await;
        second.settle(3);
        limiter.has_balance(rule, 17).await;
        assert_eq!(limiter.left(rule, "a").await, 3);
        of_quota.settle(5);
        limiter.settled(rule, "a", 5, &rule).await;
        // 5 of the quota, and 4 of the balance.
        limiter.ticket(rule, 10).await.settle(19);
        limiter.has_balance(rule, 3).await;
        assert_eq!(limiter.left(rule, "a").await, 0);
    }
}

pub async fn a_charge_takes_from_the_quota_then_the_balance_then_is_owed(subject: &Subject) {
    let end = until(subject, HOUR);
    let forgets = [AlgorithmKind::SlidingLog, AlgorithmKind::SlidingBuckets];
    let quotas = every_algorithm(10).into_iter();
    for quota in quotas.filter(|quota| !forgets.contains(&quota.algorithm())) {
        let rule = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(rule, quota).debt(50).credits()]);
        limiter.grant(rule, 5, end, "one").await;
        limiter.ticket(rule, 4).await.settle(22);
        limiter.has_balance(rule, 0).await;
        let owed = async {
            while limiter
                .peek(&[limiter.check(rule, "a", 0)])
                .await
                .verdicts()[0]
                .debt()
                != 7
            {
                sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(timeout(MINUTE, owed).await.is_ok(), "7 are owed: {quota:?}");
        limiter.grant(rule, 5, end, "two").await;
        let taken = limiter.take(rule, "a", 5).await;
        assert_eq!(source(&taken), (true, Source::Credits), "{quota:?}");
    }
}

pub async fn a_balance_is_touched_only_if_all_rules_let_pass(subject: &Subject) {
    let end = until(subject, HOUR);
    for quota in every_algorithm(10) {
        let rules = ["with", "other"].map(|name| format!("{}-{name}", quota.algorithm()));
        let [with, other] = rules.each_ref().map(|name| &**name);
        let other_rule = Rule::new(other, quota).credits();
        let limiter = subject.limiter([Rule::new(with, quota).credits(), other_rule]);
        limiter.grant(with, 10, end, "one").await;
        assert!(limiter.took(with, "a", 10).await && limiter.took(other, "a", 8).await);
        let checks = |cost| [limiter.check(with, "a", 5), limiter.check(other, "a", cost)];
        let denied = limiter.acquire(&checks(3)).await;
        assert!(!denied.is_allowed());
        assert_ne!(
            denied.verdicts()[0].source(),
            Source::Credits,
            "nothing was taken"
        );
        assert_eq!(limiter.balance(with).await, 10, "{quota:?}");
        assert!(limiter.acquire(&checks(2)).await.is_allowed());
        assert_eq!(
            (limiter.balance(with).await, limiter.left(other, "a").await),
            (5, 0)
        );
        // Both at once; and two checks on one balance are one.
        limiter.grant(other, 3, end, "one").await;
        let [first, second] = checks(3);
        let twice = [first.with_cost(2), first.with_cost(3), second];
        assert!(limiter.acquire(&twice).await.is_allowed(), "{quota:?}");
        assert_eq!(
            (limiter.balance(with).await, limiter.balance(other).await),
            (0, 0)
        );
    }
}

pub async fn each_id_grants_once_and_is_taken_back_once(subject: &Subject) {
    let (end, rule) = (until(subject, HOUR), "gcra");
    let make = |quota| [Rule::new(rule, quota).credits()];
    let limiter = subject.limiter(make(every_algorithm(10)[4]));
    let grant = |units, id| limiter.grant(rule, units, end, id);
    assert_eq!(
        (
            grant(10, "one").await.changed,
            grant(7, "one").await.changed
        ),
        (10, 0)
    );
    let granted = grant(5, "two").await;
    assert_eq!(
        (granted.units, granted.until, granted.changed),
        (15, Some(end), 5)
    );
    assert!(limiter.took(rule, "a", 10).await && limiter.took(rule, "a", 8).await);
    assert!(matches!(
        limiter
            .0
            .reset(rule, &Key::of(["a"]))
            .expect("the rule")
            .await,
        Ok(true)
    ));
    assert_eq!(limiter.balance(rule).await, 7, "a reset leaves it");
    let limiter = {
        let other = subject.replacing(&[&limiter], make(every_algorithm(10)[0]));
        other.expect("the rule")
    };
    assert_eq!(
        limiter.balance(rule).await,
        7,
        "another algorithm leaves it"
    );
    assert_eq!(limiter.revoke(rule, "unknown").await.changed, 0);
    let revoked = limiter.revoke(rule, "one").await;
    assert_eq!((revoked.units, revoked.changed), (0, 7));
    limiter.grant(rule, 3, end, "three").await;
    assert_eq!(limiter.revoke(rule, "one").await.changed, 0, "once");
    assert_eq!(
        limiter.grant(rule, 10, end, "one").await.units,
        3,
        "it was granted"
    );
}

pub async fn a_balance_ends_and_a_later_grant_prolongs_it(subject: &Subject) {
    for (limiter, rule) in each(subject, 10) {
        let start = subject.clock().now();
        let [soon, later] = [MINUTE, HOUR].map(|after| until(subject, after));
        limiter.grant(rule, 3, soon, "one").await;
        assert_eq!(
            limiter.grant(rule, 4, later, "two").await.until,
            Some(later)
        );
        assert!(limiter.took(rule, "a", 10).await);
        subject.clock().advance(HOUR - Duration::from_micros(1));
        let ticket = limiter.ticket(rule, 6).await;
        assert_eq!(limiter.balance(rule).await, 1, "{rule}");
        subject.clock().advance(Duration::from_micros(1));
        assert_eq!(limiter.balance(rule).await, 0, "{rule}");
        assert!(!limiter.took(rule, "a", 1).await);
        ticket.cancel();
        assert_eq!(
            limiter.balance(rule).await,
            0,
            "what comes back later lapses"
        );
        let late = limiter.0.grant(rule, &Key::of(["a"]), 3, later, "two");
        let late = late.expect("the rule").await.expect_err("it has ended");
        assert_eq!(late.kind(), StoreErrorKind::Refused, "{late}");
        subject.clock().set(start);
    }
}

pub async fn ids_are_known_until_their_end_and_bounded(subject: &Subject) {
    let rule = "fixed_window";
    let limiter = subject.limiter([Rule::new(rule, Quota::fixed_window(1, HOUR)).credits()]);
    let [soon, later] = [MINUTE, HOUR].map(|after| until(subject, after));
    for n in 0..MOST_GRANTS {
        let end = if n < 2 { soon } else { later };
        limiter.grant(rule, 1, end, &format!("invoice-{n}")).await;
    }
    let one_more = || async {
        let granted = limiter.0.grant(rule, &Key::of(["a"]), 1, later, "one more");
        granted.expect("the rule").await
    };
    let refused = one_more().await.expect_err("there are too many");
    assert_eq!(refused.kind(), StoreErrorKind::Refused, "{refused}");
    assert_eq!(limiter.grant(rule, 1, later, "invoice-0").await.changed, 0);
    subject.clock().advance(MINUTE);
    assert_eq!(
        one_more().await.expect("two are forgotten").units,
        MOST_GRANTS as u64 + 1
    );
}

pub async fn among_many_tasks_quota_and_balance_are_used_exactly_once(subject: &Subject) {
    let end = until(subject, HOUR);
    let rules = ["one", "two"].map(|name| Rule::new(name, every_algorithm(20)[0]).credits());
    let limiter = Arc::new(subject.limiter(rules));
    let mut tasks = JoinSet::new();
    for task in 0..12 {
        let limiter = Arc::clone(&limiter);
        tasks.spawn(async move {
            for rule in ["one", "two"] {
                // Each is granted by all of them.
                limiter
                    .grant(rule, 30, end, &format!("id-{}", task % 2))
                    .await;
            }
            let mut allowed = 0;
            for _ in 0..20 {
                let checks = [limiter.check("one", "a", 1), limiter.check("two", "a", 1)];
                allowed += u64::from(limiter.acquire(&checks).await.is_allowed());
            }
            allowed
        });
    }
    let allowed: u64 = tasks.join_all().await.into_iter().sum();
    assert_eq!(allowed, 20 + 2 * 30);
}

pub async fn what_cannot_have_credits_is_refused_with_what_would(subject: &Subject) {
    let (end, quota) = (until(subject, HOUR), Quota::gcra(10, MINUTE));
    let eventual = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 1,
    };
    for (rule, words) in [
        (
            Rule::new("api", quota).consistency(eventual),
            "Consistency::Leased",
        ),
        (Rule::new("api", quota).wait(MINUTE), "leave wait() out"),
        (
            Rule::new("api", Quota::concurrent(5)),
            "Quota::fixed_window",
        ),
        (Rule::new("api", Quota::unlimited()), "give it a quota"),
    ] {
        let error = RuleSet::new([rule.credits()])
            .map(|_| ())
            .expect_err("it cannot");
        assert!(error.to_string().contains(words), "{error}");
    }
    let limiter = subject.limiter([
        Rule::new("with", quota).credits(),
        Rule::new("without", quota),
    ]);
    let key = Key::of(["a"]);
    for (rule, units, end, id, words) in [
        ("without", 1, end, "id", "add credits()"),
        ("with", 0, end, "id", "between 1 and"),
        ("with", 1, end, "", "1 to 256"),
        ("with", 1, end + 100 * 366 * 24 * HOUR, "id", "2112"),
        ("wiht", 1, end, "id", "did you mean"),
    ] {
        let error = limiter
            .0
            .grant(rule, &key, units, end, id)
            .map(|_| ())
            .expect_err("wrong");
        assert!(error.to_string().contains(words), "{error}");
    }
}
