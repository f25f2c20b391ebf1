//! A process that dies.

use tollgate_test_services::{
    child::{Load, RuleLoad},
    quotas::ALGORITHMS,
};

use crate::fleet::{Fleet, TASKS};

#[tokio::test]
async fn a_process_that_is_killed_takes_no_more_with_it_than_it_was_asking_for() {
    // More than four processes ask for: the one that dies goes on asking until the signal has come.
    const LIMIT: u64 = 1_000;
    const ATTEMPTS: u64 = 3;
    for algorithm in 0..ALGORITHMS {
        let mut fleet = Fleet::start();
        let load = Load {
            tasks: TASKS,
            attempts: ATTEMPTS,
            dies_after: 0,
            rule_loads: vec![RuleLoad {
                rule: "shared".to_owned(),
                algorithm,
                limit: LIMIT,
                cost: 1,
                clients: 1,
                leased: 0,
            }],
        };
        let doomed = Load {
            dies_after: 50,
            ..load.clone()
        };
        let (first, others) = fleet.processes.split_at_mut(1);
        first[0].begin(&doomed);
        for process in &mut *others {
            process.begin(&load);
        }
        assert_eq!(first[0].finish::<u64>(), None, "it has not died");
        for process in &mut *others {
            assert_eq!(process.finish(), Some(ATTEMPTS * TASKS));
        }
        // Once more, until nothing is left.
        for process in &mut *others {
            process.begin(&load);
        }
        for process in others {
            assert!(process.finish::<u64>().is_some());
        }
        // A task of the dead process may have been admitted and not have said so.
        let metered = fleet.metered();
        assert!(
            (LIMIT - TASKS..=LIMIT).contains(&metered),
            "{metered} of {LIMIT} were admitted"
        );
        let limiter = load.limiter(&fleet.store().await);
        let left = limiter.peek(&load.checks(&limiter, 0)).await;
        assert_eq!(left.verdicts()[0].remaining(), 0);
    }
}
