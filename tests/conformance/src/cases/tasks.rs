//! Many tasks at once.

use tokio::task::JoinSet;

use tollgate_core::Rule;

use crate::{quotas::every_algorithm, subject::Subject};

const TASKS: u64 = 64;
const ATTEMPTS: u64 = 10_000;

/// The attempts of task number `task`.
fn attempts_of(task: u64) -> std::ops::Range<u64> {
    ATTEMPTS * task / TASKS..ATTEMPTS * (task + 1) / TASKS
}

pub async fn among_many_tasks_exactly_the_limit_passes(subject: &Subject) {
    for (limiter, name, quota) in subject.each(1_000) {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut passed = 0_u64;
                for _ in attempts_of(task) {
                    passed += u64::from(limiter.took(name, "a", 1).await);
                }
                passed
            });
        }
        let passed: u64 = tasks.join_all().await.into_iter().sum();
        assert_eq!(passed, 1_000, "{quota:?}");
    }
}

pub async fn among_many_tasks_a_denied_request_takes_nothing(subject: &Subject) {
    for (wide, narrow) in every_algorithm(1_000).into_iter().zip(every_algorithm(100)) {
        let name = wide.algorithm().name();
        let names = [0, 1, 2].map(|n| format!("{name}-{n}"));
        let limiter = subject.limiter([
            Rule::new(&*names[0], wide),
            Rule::new(&*names[1], wide),
            Rule::new(&*names[2], narrow),
        ]);
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (limiter, names) = (limiter.clone(), names.clone());
            tasks.spawn(async move {
                let mut passed = 0;
                for attempt in 0..16 {
                    let who = ["a", "b", "c"][(attempt % 3) as usize];
                    let mut checks = [
                        limiter.check(&names[0], "all", 1),
                        limiter.check(&names[1], "all", 2),
                        limiter.check(&names[2], who, 1),
                    ];
                    checks.rotate_left(((task + attempt) % 3) as usize);
                    passed += u64::from(limiter.acquire(&checks).await.is_allowed());
                }
                passed
            });
        }
        let passed: u64 = tasks.join_all().await.into_iter().sum();
        assert_eq!(passed, 300, "{wide:?}");
        assert_eq!(
            limiter.left(&names[0], "all").await,
            1_000 - passed,
            "{wide:?}"
        );
        assert_eq!(
            limiter.left(&names[1], "all").await,
            1_000 - 2 * passed,
            "{wide:?}"
        );
        for who in ["a", "b", "c"] {
            assert_eq!(limiter.left(&names[2], who).await, 0, "{wide:?}");
        }
    }
}

pub async fn among_many_tasks_partial_grants_sum_up_to_the_limit(subject: &Subject) {
    for (limiter, name, quota) in subject.each(1_000) {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let check = [limiter.check(name, "a", 1)];
                let mut granted = 0;
                loop {
                    let wanted = 3 + (task + granted) % 7;
                    match limiter.0.acquire_up_to(&check, wanted).await.units {
                        0 => return granted,
                        units => granted += units,
                    }
                }
            });
        }
        let granted: u64 = tasks.join_all().await.into_iter().sum();
        assert_eq!(granted, 1_000, "{quota:?}");
    }
}
