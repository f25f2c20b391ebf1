//! Names, and the quotas that are bound to them.

use std::sync::{Arc, Barrier};

use tollgate_core::{MemoryStore, Outcome, Quota, Rule, RuleErrorKind};

use crate::{
    quotas::every_algorithm,
    subject::{Subject, TestLimiter},
};

pub async fn a_name_is_one_budget_for_all_who_bind_it(subject: &Subject) {
    for quota in every_algorithm(4) {
        let name = quota.algorithm().name();
        let one = subject.limiter([Rule::new(name, quota)]);
        let other = subject.limiter([Rule::new("another", quota), Rule::new(name, quota)]);
        assert!(one.took(name, "a", 2).await);
        assert!(other.took(name, "a", 2).await);
        assert!(!one.took(name, "a", 1).await, "{quota:?}");
        assert!(!other.took(name, "a", 1).await, "{quota:?}");
        other
            .0
            .rule_store()
            .reset(&[other.check("another", "a", 1)])
            .await
            .expect("the store is there");
    }
}

pub async fn a_raised_limit_keeps_what_was_used(subject: &Subject) {
    for (small, large) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = small.algorithm().name();
        let before = subject.limiter([Rule::new(name, small)]);
        assert!(before.took(name, "a", 10).await);
        assert!(!before.took(name, "a", 1).await);
        let after = subject.replacing(&[&before], [Rule::new(name, large)]);
        let after = after.expect("it replaces the other");
        assert_eq!(after.left(name, "a").await, 90, "{small:?}");
        assert!(after.took(name, "a", 90).await, "{small:?}");
        assert!(!after.took(name, "a", 1).await, "{small:?}");
    }
}

pub async fn a_lowered_limit_keeps_what_was_used(subject: &Subject) {
    for (small, large) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = small.algorithm().name();
        let before = subject.limiter([Rule::new(name, large)]);
        assert!(before.took(name, "a", 4).await);
        assert!(before.took(name, "b", 50).await);
        let after = subject.replacing(&[&before], [Rule::new(name, small)]);
        let after = after.expect("it replaces the other");
        assert_eq!(after.left(name, "a").await, 6, "{small:?}");
        assert!(!after.took(name, "a", 7).await, "{small:?}");
        assert!(after.took(name, "a", 6).await, "{small:?}");
        assert!(!after.took(name, "b", 1).await, "{small:?}");
    }
}

pub async fn a_second_quota_under_a_name_in_use_is_refused(subject: &Subject) {
    for (strict, loose) in every_algorithm(5).into_iter().zip(every_algorithm(600)) {
        let name = strict.algorithm().name();
        let login = subject.limiter([Rule::new(name, strict)]);
        assert!(login.took(name, "a", 4).await);
        let [fixed, sliding, ..] = every_algorithm(5);
        let other = if strict == fixed { sliding } else { fixed };
        for quota in [loose, other, Quota::unlimited()] {
            // In a set with others, and behind one that is fine.
            let rules = [Rule::new("fine", quota), Rule::new(name, quota)];
            let error = subject.replacing(&[], rules).expect_err("a second quota");
            assert_eq!(error.kind(), RuleErrorKind::Conflict);
            assert_eq!(error.rule(), Some(name));
            let text = error.to_string();
            for words in [
                &*format!("{strict:?}"),
                &format!("{quota:?}"),
                "another name",
                "same quota",
                "replacing",
            ] {
                assert!(text.contains(words), "{text:?} lacks {words:?}");
            }
        }
        assert!(login.took(name, "a", 1).await, "{strict:?}");
        assert!(!login.took(name, "a", 1).await, "{strict:?}");
    }
}

pub async fn other_plans_under_a_name_in_use_are_refused(subject: &Subject) {
    let [quota, ..] = every_algorithm(5);
    let [gold, ..] = every_algorithm(50);
    let [more, ..] = every_algorithm(60);
    let rule = || Rule::new("rule", quota);
    let _live = subject.limiter([rule().plan("gold", gold).plan("staff", Quota::unlimited())]);
    for plans in [
        rule(),
        rule().plan("gold", gold),
        rule().plan("gold", more).plan("staff", Quota::unlimited()),
        rule().plan("gold", gold).plan("staff", more),
        rule()
            .plan("gold", gold)
            .plan("staff", Quota::unlimited())
            .plan("silver", gold),
    ] {
        let error = subject.replacing(&[], [plans]).expect_err("other plans");
        assert_eq!(error.kind(), RuleErrorKind::Conflict);
        assert!(error.to_string().contains("plan"), "{error}");
    }
    // In whatever order.
    subject.limiter([rule().plan("staff", Quota::unlimited()).plan("gold", gold)]);
}

pub async fn a_refused_limiter_leaves_its_other_names_free(subject: &Subject) {
    let [one, other, ..] = every_algorithm(5);
    let _live = subject.limiter([Rule::new("in-use", one)]);
    for rules in [["free", "in-use"], ["in-use", "free"]] {
        let refused = subject.replacing(&[], rules.map(|name| Rule::new(name, other)));
        assert!(refused.is_err());
        drop(subject.limiter([Rule::new("free", one)]));
    }
}

pub async fn a_name_is_free_when_the_last_limiter_is_dropped_though_a_ticket_is_held(
    subject: &Subject,
) {
    for (one, other) in every_algorithm(5).into_iter().zip(every_algorithm(50)) {
        let name = one.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, one)]);
        let clone = limiter.clone();
        let check = [limiter.check(name, "a", 2)];
        let decision = limiter.acquire(&check).await;
        let ticket = limiter.0.ticket(&check, &decision);
        drop(limiter);
        let refused = subject.replacing(&[], [Rule::new(name, other)]);
        assert!(refused.is_err(), "a clone is there: {one:?}");
        drop(clone);
        subject.limiter([Rule::new(name, other)]);
        drop(ticket);
    }
}

pub async fn a_limiter_that_was_replaced_no_longer_holds_its_names(subject: &Subject) {
    let [one, other, third, ..] = every_algorithm(5);
    let old = [
        subject.limiter([Rule::new("rule", one), Rule::new("more", one)]),
        subject.limiter([Rule::new("rule", one)]),
    ];
    let rules = || [Rule::new("rule", other)];
    // Of two that share the name, both have to go.
    assert!(subject.replacing(&[&old[0]], rules()).is_err());
    for name in ["rule", "more"] {
        let refused = subject.replacing(&[], [Rule::new(name, third)]);
        assert!(refused.is_err(), "what failed has replaced nothing: {name}");
    }
    let new = subject.replacing(&[&old[0], &old[1]], rules());
    let new = new.expect("it replaces both");
    assert!(subject.replacing(&[], [Rule::new("rule", one)]).is_err());
    // That name went with the limiter.
    drop(subject.limiter([Rule::new("more", other)]));
    // They still settle and decide, and their end takes nothing from the new one.
    assert!(old[0].took("rule", "a", 1).await);
    drop(old);
    assert!(subject.replacing(&[], [Rule::new("rule", one)]).is_err());
    drop(new);
    subject.limiter([Rule::new("rule", third)]);
}

pub async fn only_what_counts_in_this_store_can_be_replaced(subject: &Subject) {
    let [one, other, ..] = every_algorithm(5);
    let elsewhere = Subject::new(MemoryStore::new(), Subject::new_clock());
    let stranger = elsewhere.limiter([Rule::new("rule", one)]);
    let error = subject.replacing(&[&stranger], [Rule::new("rule", other)]);
    let error = error.expect_err("it is of another store");
    assert!(error.to_string().contains("same store"), "{error}");
    subject.limiter([Rule::new("rule", other)]);
}

pub async fn a_rule_that_is_off_and_a_threshold_hold_no_name(subject: &Subject) {
    let [one, other, ..] = every_algorithm(5);
    let [warn, ..] = every_algorithm(4);
    let _live = subject.limiter([Rule::new("rule", one).threshold("warn", warn)]);
    let _off = subject.limiter([Rule::new("rule", other).off()]);
    let _warn = subject.limiter([Rule::new("warn", other)]);
}

pub async fn of_threads_that_bind_a_name_to_different_quotas_one_wins(subject: &Subject) {
    const THREADS: u64 = 8;
    for round in 0..20 {
        let name: Arc<str> = format!("rule-{round}").into();
        let begin = Barrier::new(THREADS as usize);
        let live: Vec<_> = std::thread::scope(|scope| {
            let (begin, name) = (&begin, &name);
            let bind = |thread: u64| {
                let [quota, ..] = every_algorithm(1 + thread / 2);
                let rule = Rule::new(Arc::clone(name), quota);
                let inner = tokio::runtime::Handle::current();
                move || {
                    let _within = inner.enter();
                    begin.wait();
                    subject.replacing(&[], [rule]).ok()
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(bind(n))).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|live| live.expect("no panic")).collect()
        });
        let quota = |live: &TestLimiter| *live.0.rules().rules()[0].quota();
        let quotas: Vec<_> = live.iter().flatten().map(quota).collect();
        assert_eq!(quotas.len(), 2, "those that agree are two: {quotas:?}");
        assert_eq!(quotas[0], quotas[1]);
    }
}

pub async fn what_was_used_stays_used_after_the_name_was_free_in_between(subject: &Subject) {
    for (small, large) in every_algorithm(10).into_iter().zip(every_algorithm(12)) {
        let name = small.algorithm().name();
        for _ in 0..10 {
            // One for each request: no service should do that.
            let limiter = subject.limiter([Rule::new(name, small)]);
            assert!(limiter.took(name, "a", 1).await, "{small:?}");
        }
        let limiter = subject.limiter([Rule::new(name, small)]);
        assert!(!limiter.took(name, "a", 1).await, "{small:?}");
        drop(limiter);
        let limiter = subject.limiter([Rule::new(name, large)]);
        assert_eq!(limiter.left(name, "a").await, 2, "{small:?}");
        assert_eq!(limiter.left(name, "b").await, 12, "{small:?}");
    }
}

pub async fn another_algorithm_under_a_name_starts_fresh(subject: &Subject) {
    let [fixed, sliding, buckets, log, gcra, ..] = every_algorithm(3);
    for quota in [fixed, sliding, buckets, log, gcra] {
        let limiter = subject.limiter([Rule::new("one-name", quota)]);
        assert!(limiter.took("one-name", "a", 3).await, "{quota:?}");
        assert!(!limiter.took("one-name", "a", 1).await, "{quota:?}");
    }
}

pub async fn a_change_of_plan_keeps_what_was_used(subject: &Subject) {
    for (free, gold) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = free.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, free).plan("gold", gold)]);
        assert!(limiter.took(name, "a", 4).await);
        let decision = limiter
            .acquire(&[limiter.planned(name, "gold", "a", 5)])
            .await;
        assert!(decision.is_allowed(), "{free:?}");
        assert_eq!(decision.verdicts()[0].plan(), 1);
        assert_eq!(decision.verdicts()[0].remaining(), 91, "{free:?}");
        assert!(!limiter.took(name, "a", 2).await, "{free:?}");
        assert!(limiter.took(name, "a", 1).await, "{free:?}");
        let gold = limiter.peek(&[limiter.planned(name, "gold", "a", 0)]).await;
        assert_eq!(gold.verdicts()[0].remaining(), 90, "{free:?}");
    }
}

pub async fn a_denial_under_a_small_plan_gives_nothing_back_to_a_large_one(subject: &Subject) {
    for (free, gold) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = free.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, free).plan("gold", gold)]);
        let golden = [limiter.planned(name, "gold", "a", 10)];
        let mut passed = 0;
        for _ in 0..30 {
            passed += u64::from(limiter.acquire(&golden).await.is_allowed());
            let small = limiter.take(name, "a", 1).await;
            assert!(!small.is_allowed(), "{free:?}");
            assert_eq!(small.verdicts()[0].remaining(), 0, "{free:?}");
        }
        assert_eq!(passed, 10, "{free:?}");
    }
}

pub async fn an_unlimited_plan_takes_nothing(subject: &Subject) {
    for quota in every_algorithm(3) {
        let name = quota.algorithm().name();
        let rule = Rule::new(name, quota).plan("staff", Quota::unlimited());
        let limiter = subject.limiter([rule]);
        for _ in 0..5 {
            let decision = limiter
                .acquire(&[limiter.planned(name, "staff", "a", 1_000)])
                .await;
            assert!(decision.is_allowed(), "{quota:?}");
            assert_eq!(
                decision.verdicts()[0].outcome(),
                Outcome::NotDecided,
                "{quota:?}"
            );
        }
        assert_eq!(limiter.left(name, "a").await, 3, "{quota:?}");
    }
}

pub async fn an_unlimited_plan_does_not_stand_for_a_limited_one(subject: &Subject) {
    for quota in every_algorithm(3) {
        let name = quota.algorithm().name();
        let rule = Rule::new(name, quota).plan("staff", Quota::unlimited());
        let limiter = subject.limiter([rule]);
        let checks = [
            limiter.planned(name, "staff", "a", 1),
            limiter.check(name, "a", 2),
        ];
        assert!(limiter.acquire(&checks).await.is_allowed(), "{quota:?}");
        assert!(!limiter.acquire(&checks).await.is_allowed(), "{quota:?}");
        assert_eq!(limiter.left(name, "a").await, 1, "{quota:?}");
    }
}

pub async fn a_quota_of_a_check_keeps_what_was_used(subject: &Subject) {
    let quotas = [10, 100, 50].map(every_algorithm);
    for (own, (large, medium)) in quotas[0]
        .into_iter()
        .zip(quotas[1].into_iter().zip(quotas[2]))
    {
        let name = own.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, own).variable_quota()]);
        assert!(limiter.took(name, "a", 4).await);
        let five = limiter.with_quota(name, large, "a", 5);
        let decision = limiter.acquire(&[five]).await;
        assert!(decision.is_allowed(), "{own:?}");
        assert_eq!(decision.verdicts()[0].remaining(), 91, "{own:?}");
        let medium = limiter.with_quota(name, medium, "a", 1);
        let decision = limiter.acquire(&[medium]).await;
        assert_eq!(decision.verdicts()[0].remaining(), 40, "{own:?}");
        // Ten are used: the rule's own quota is used up, and says so.
        assert!(!limiter.took(name, "a", 1).await, "{own:?}");
        // What it gives back, it gives back to what was used.
        limiter.0.ticket(&[medium], &decision).cancel();
        limiter.settled(name, "a", 1, &own).await;
        let large = limiter.with_quota(name, large, "a", 0);
        let looked = limiter.peek(&[large]).await;
        assert_eq!(looked.verdicts()[0].remaining(), 91, "{own:?}");
        // Without a limit nothing is counted.
        let free = limiter.with_quota(name, Quota::unlimited(), "a", 1_000);
        let decision = limiter.acquire(&[free]).await;
        assert!(decision.is_allowed(), "{own:?}");
        assert_eq!(decision.verdicts()[0].outcome(), Outcome::NotDecided);
        // The same numbers as the rule's are the rule's.
        let same = limiter.with_quota(name, own, "a", 1);
        assert_eq!(same, limiter.check(name, "a", 1), "{own:?}");
    }
}

pub async fn quotas_of_checks_admit_together_what_the_largest_does(subject: &Subject) {
    for (index, own) in every_algorithm(10).into_iter().enumerate() {
        let name = own.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, own).variable_quota()]);
        let mut passed = 0;
        // Another quota with each request: from 11 to 40 units, and none is the same.
        for n in 0..60_u64 {
            let quota = every_algorithm(11 + n * 7 % 30)[index];
            let check = limiter.with_quota(name, quota, "a", 2);
            passed += 2 * u64::from(limiter.acquire(&[check]).await.is_allowed());
        }
        assert!((30..=40).contains(&passed), "{passed} of {own:?}");
    }
}
