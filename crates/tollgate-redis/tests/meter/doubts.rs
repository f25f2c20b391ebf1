//! What one process tells before another has told what came before it is doubted, and not counted.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate_core::{HOUR, Outcome, Quota, Rule};

use crate::{Site, refused_falsely, seen, unit};

const QUOTAS: [Quota; 4] = [
    Quota::fixed_window(100, HOUR),
    Quota::sliding_window(100, HOUR),
    Quota::sliding_buckets(100, HOUR),
    Quota::gcra(100, HOUR),
];

/// For connections, and for all that may happen at any time.
fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).enable_all();
    builder.build().expect("a thread")
}

/// What is asked here is told only when this runs again.
fn runs_when_told_to() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

#[test]
fn units_that_another_process_tells_of_later_make_no_refusal_false() {
    for quota in QUOTAS {
        let (runtime, late) = (runtime(), runs_when_told_to());
        let rules = [Rule::new("per-key", quota)];
        let (site, one, unseen, other) = runtime.block_on(async {
            let site = Site::start().await;
            let one = site.process(1, &rules).await;
            let (unseen, other) = (site.unseen(&rules).await, site.process(1, &rules).await);
            (site, one, unseen, other)
        });
        // As long as a meter has to run before it believes what it knows.
        site.clock.advance(2 * HOUR);
        let taken = late.block_on(one.ask(&[unit(7).with_cost(100)]));
        assert!(taken.is_allowed());
        runtime.block_on(async {
            // Of these units no account ever hears.
            let taken = unseen.ask(&[unit(8).with_cost(100)]).await;
            assert!(taken.is_allowed());
            for key in [7, 8] {
                let refused = other.ask(&[unit(key)]).await;
                assert_eq!(refused.outcome(), Outcome::Deny);
            }
            assert_eq!(seen(&[&other], 2).await.falsely, 0, "{quota:?}");
        });
        late.block_on(seen(&[&one], 1));
        site.clock.advance(Duration::from_millis(100));
        runtime.block_on(async {
            refused_falsely(&other, 1).await;
            // Both were asked about again before this one was.
            assert_eq!(other.ask(&[unit(8)]).await.outcome(), Outcome::Deny);
            seen(&[&other], 3).await;
            site.clock.advance(Duration::from_millis(100));
            refused_falsely(&other, 2).await;
        });
        assert_eq!(other.seen().falsely, 2, "{quota:?}");
    }
}
