//! What one process tells before another has told what came before it is doubted, and not counted.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate_core::{Check, Consistency, HOUR, Outcome, Quota, Rule, Step, store::Settlement};

use crate::{Fleet, LATER, Process, followed::take, seen, unit, until};

const QUOTAS: [Quota; 4] = [
    Quota::fixed_window(100, HOUR),
    Quota::sliding_window(100, HOUR),
    Quota::sliding_buckets(100, HOUR),
    Quota::gcra(100, HOUR),
];

/// Processes whose connections do as they like, and a runtime for one of them: what is asked there is told only when it runs
/// again.
struct Bench {
    runtime: Runtime,
    late: Runtime,
    fleet: Fleet,
    one: Process,
    other: Process,
    /// No account knows of this one.
    unseen: Process,
}

impl Bench {
    fn new(quota: Quota) -> Self {
        let eventual = Consistency::Eventual {
            interval: HOUR,
            max_unreported: 100,
        };
        let rules = [
            Rule::new("exact", quota),
            Rule::new("eventual", quota).consistency(eventual),
        ];
        let (mut runtime, mut late) = (Builder::new_multi_thread(), Builder::new_current_thread());
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a thread");
        let (fleet, one, other, unseen) = runtime.block_on(async {
            let fleet = Fleet::start().await;
            let (one, other) = (
                fleet.process(1, &rules).await,
                fleet.process(1, &rules).await,
            );
            let unseen = fleet.unseen(&rules).await;
            (fleet, one, other, unseen)
        });
        // As long as a meter has to run before it believes what it knows.
        fleet.clock.advance(2 * HOUR);
        Self {
            runtime,
            late: late.enable_all().build().expect("a runtime"),
            fleet,
            one,
            other,
            unseen,
        }
    }

    /// What this process has sent before was carried out.
    async fn is_carried_out(process: &Process) {
        if let Step::Wait(answer) = process.bound.peek(&[unit(9)]) {
            let _ = answer.await;
        }
    }

    /// A false refusal is seen, and so all that looked like one before has been judged.
    fn nothing_was_false(&self, quota: Quota) {
        self.runtime.block_on(async {
            let all = unit(8).with_cost(100);
            assert!(self.unseen.acquire(&[all]).await.is_allowed());
            for times in 1..=2 {
                let refused = self.other.acquire(&[unit(8)]).await;
                assert_eq!(refused.outcome(), Outcome::Deny);
                let before = seen(&[&self.other], 1 + times).await.falsely;
                assert_eq!(before, times - 1, "{quota:?}");
                self.fleet.clock.advance(LATER);
                let seen = until(&[&self.other], |seen| seen.falsely >= times).await;
                assert_eq!((seen.falsely, seen.over), (times, 0), "{quota:?}");
            }
        });
    }
}

#[test]
fn units_that_another_process_tells_of_later_make_no_refusal_false() {
    for quota in QUOTAS {
        let bench = Bench::new(quota);
        let all = unit(7).with_cost(100);
        let taken = bench.late.block_on(bench.one.acquire(&[all]));
        assert!(taken.is_allowed());
        bench.runtime.block_on(async {
            let refused = bench.other.acquire(&[unit(7)]).await;
            assert_eq!(refused.outcome(), Outcome::Deny);
            assert_eq!(seen(&[&bench.other], 1).await.falsely, 0, "{quota:?}");
        });
        bench.late.block_on(seen(&[&bench.one], 1));
        bench.nothing_was_false(quota);
    }
}

#[test]
fn units_reported_after_their_window_make_no_later_denial_false() {
    let quota = Quota::sliding_window(100, HOUR);
    let bench = Bench::new(quota);
    // From the middle of an hour to its end.
    let end = HOUR / 2 - Duration::from_millis(10);
    bench.fleet.clock.advance(end);
    let all = unit(7).with_cost(100);
    let taken = bench.late.block_on(bench.one.acquire(&[all]));
    assert!(taken.is_allowed());
    bench.fleet.clock.advance(Duration::from_millis(20));
    bench.runtime.block_on(async {
        let refused = bench.other.acquire(&[unit(7)]).await;
        assert_eq!(refused.outcome(), Outcome::Deny);
        assert_eq!(seen(&[&bench.other], 1).await.falsely, 0);
    });
    let reported = bench.late.block_on(seen(&[&bench.one], 1));
    assert_eq!(reported.dropped, 1);
    bench.runtime.block_on(Bench::is_carried_out(&bench.one));
    bench.nothing_was_false(quota);
}

#[test]
fn units_that_another_process_gives_back_and_tells_of_later_are_not_above_the_limit() {
    for quota in QUOTAS {
        let bench = Bench::new(quota);
        let (one, other) = (&bench.one, &bench.other);
        let holding = bench.runtime.block_on(async {
            let holding = take(one, unit(7).with_cost(100)).await;
            seen(&[one], 1).await;
            holding
        });
        bench
            .late
            .block_on(async { one.bound.settle(&[holding], Settlement::Refund(50)) });
        bench.runtime.block_on(async {
            Bench::is_carried_out(one).await;
            take(other, unit(7).with_cost(50)).await;
            assert_eq!(seen(&[other], 1).await.over, 0, "{quota:?}");
        });
        bench.late.block_on(async {
            // What is told next is told after it.
            take(one, unit(6)).await;
            seen(&[one], 2).await
        });
        bench.runtime.block_on(async {
            // Units that are above the limit, so that all that looked so before has been judged when they are seen.
            let mut admitted = 0;
            for process in [one, other] {
                for _ in 0..100 {
                    let unit = Check::new(1, unit(7).key(), 1);
                    admitted += u64::from(process.acquire(&[unit]).await.is_allowed());
                }
            }
            seen(&[one, other], 203).await;
            bench.fleet.clock.advance(LATER);
            let seen = until(&[one, other], |seen| seen.over >= admitted - 100).await;
            assert_eq!(seen.over, admitted - 100, "{quota:?}");
        });
    }
}
