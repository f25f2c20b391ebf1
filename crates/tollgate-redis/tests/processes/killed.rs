//! A process that dies.

use crate::{
    site::{Site, TASKS},
    support::{
        child::{Ask, Job},
        quotas::ALGORITHMS,
    },
};

#[tokio::test]
async fn a_process_that_is_killed_takes_no_more_with_it_than_it_was_asking_for() {
    // More than four processes ask for: the one that dies goes on asking until the signal has come.
    const LIMIT: u64 = 1_000;
    const ATTEMPTS: u64 = 3;
    for algorithm in 0..ALGORITHMS {
        let mut site = Site::start();
        let job = Job {
            tasks: TASKS,
            attempts: ATTEMPTS,
            dies_after: 0,
            asks: vec![Ask {
                rule: "shared".to_owned(),
                algorithm,
                limit: LIMIT,
                cost: 1,
                clients: 1,
            }],
        };
        let doomed = Job {
            dies_after: 50,
            ..job.clone()
        };
        let (first, others) = site.processes.split_at_mut(1);
        first[0].begin(&doomed);
        for process in &mut *others {
            process.begin(&job);
        }
        assert_eq!(first[0].finish::<u64>(), None, "it has not died");
        for process in &mut *others {
            assert_eq!(process.finish(), Some(ATTEMPTS * TASKS));
        }
        // Once more, until nothing is left.
        for process in &mut *others {
            process.begin(&job);
        }
        for process in others {
            assert!(process.finish::<u64>().is_some());
        }
        // A task of the dead process may have been admitted and not have said so.
        let metered = site.metered();
        assert!(
            (LIMIT - TASKS..=LIMIT).contains(&metered),
            "{metered} of {LIMIT} were admitted"
        );
        let limiter = job.limiter(&site.store().await);
        let left = limiter.peek(&job.checks(&limiter, 0)).await;
        assert_eq!(left.verdicts()[0].remaining(), 0);
    }
}
