//! What has to hold when an order of events has ended.

use tollgate_core::{AlgorithmKind, Consistency};

use crate::{
    run::{Run, TRUST},
    store::assess,
    world::{Content, Event},
};

/// An order of events at its end: nothing is under way any more.
pub(crate) struct End<'a>(Run<'a>);

impl<'a> End<'a> {
    /// Flushes everything, as when the processes end. All units have to be where they belong.
    pub(crate) fn check_all(run: Run<'a>) {
        let mut end = Self(run);
        end.flush();
        end.check("at the end");
        if end.0.processes.iter().any(|it| it.is_removed) {
            return;
        }
        end.leases_are_wanted_again();
        // All that there is can be used.
        for _ in 0..2 {
            end.0.now += TRUST;
            while end.any_is_admitted() {}
            end.check_limit();
            end.flush();
            end.check("when all units were acquired");
        }
        end.check_used_up();
    }

    fn any_is_admitted(&mut self) -> bool {
        for process in 0..self.0.processes.len() {
            self.0.request_at_once(process, 1);
        }
        let last = self.0.requests.iter().rev().take(self.0.processes.len());
        last.filter(|request| request.is_admitted).count() > 0
    }

    fn flush(&mut self) {
        for process in 0..self.0.processes.len() {
            for bound in 0..self.0.processes[process].bound.len() {
                let is_retired = bound + 1 < self.0.processes[process].bound.len();
                // What a retired rule set holds has gone back by itself, unless that did not run.
                let is_back = is_retired && !self.did_not_run();
                for _ in 0..9 {
                    if is_back && self.0.processes[process].bound[bound].is_reported() {
                        break;
                    }
                    let queries = self.0.processes[process].bound[bound].flush(self.0.now);
                    if queries.is_empty() {
                        break;
                    }
                    self.0.send_all(process, bound, queries);
                    self.0.bring_in(0);
                }
                let is_reported = self.0.processes[process].bound[bound].is_reported();
                self.0.must(is_reported, || "everything is reported".into());
            }
        }
    }

    fn did_not_run(&self) -> bool {
        let mut trace = self.0.trace.iter();
        trace.any(|event| matches!(event, Event::NotRun(_)))
    }

    /// No query is taken for one that is still under way.
    fn leases_are_wanted_again(&mut self) {
        if !self.0.world.is_leased() {
            return;
        }
        for process in 0..self.0.processes.len() {
            // The cost is so high that a lease pays. The first reply is one after all queries that were lost, so that the second
            // query asks for a lease.
            for _ in 0..2 {
                self.0.now += TRUST;
                self.0
                    .request_at_once(process, self.0.world.quota.limit() - 1);
            }
            self.0.now += TRUST;
            self.0.begin(process, self.0.world.quota.limit() - 1);
            let Some(message) = self.0.messages.first() else {
                continue;
            };
            if let Content::Query { leases, checks, .. } = &message.content
                && checks.iter().any(|check| check.rule() == 0)
            {
                let is_wanted = leases.iter().any(|item| item.query.requests_grant());
                self.0.must(is_wanted, || "a lease is wanted".into());
            }
            self.0.bring_in(0);
        }
        self.flush();
    }

    fn check(&self, when: &str) {
        let (world, now) = (self.0.world, self.0.store_now());
        for it in &self.0.processes {
            let on_lease = it.engine.usage(self.0.now).units_on_lease;
            let says = || format!("{on_lease} units are on lease {when}");
            self.0.must(on_lease == 0, says);
            let unreported = it.engine.usage(self.0.now).units_unreported;
            let says = || format!("{unreported} units are unreported {when}");
            self.0.must(unreported == 0, says);
            let lost = it.lost();
            let says = || format!("{lost} units are said to be lost, {} are", it.really_lost);
            self.0.must(lost == it.really_lost, says);
        }
        if !world.is_window() {
            if self.0.was_reset {
                return;
            }
            let left = self.0.reference.left_in_bucket(&world.quota, now);
            let in_store = i128::from(assess(&self.0.store, now, 0).remaining);
            let says = || format!("the exact bucket has {left}, the store {in_store} {when}");
            return self.0.must(left >= in_store, says);
        }
        let counted = self.0.store.counted(now);
        let (admitted, lost) = self.0.reference.of_window(world, now);
        let says = || format!("{counted} are counted, {admitted} admitted, {lost} lost {when}");
        if self.0.was_reset {
            let never = self.0.reference.never_reported();
            self.0.must(
                admitted <= counted + never + self.0.reference.excused(),
                says,
            );
        } else if world.is_leased() {
            self.0.must(counted == admitted + lost, says);
        } else if !world.turns() {
            let never = self.0.reference.never_reported();
            self.0.must(counted + never == admitted + lost, says);
        } else {
            self.0
                .must(counted <= self.0.reference.total() + lost, says);
        }
    }

    fn check_limit(&self) {
        let (world, limit) = (self.0.world, self.0.world.quota.limit());
        let beyond = match world.consistency {
            Consistency::Eventual { max_unreported, .. } => {
                // What is lost with a report, or comes back after a reset, is let through once more.
                world.processes as u64 * max_unreported + self.0.reference.never_reported()
            }
            _ => 0,
        };
        let most = self.0.reference.most_in_a_window();
        let is_fixed = world.is_window() && world.quota.algorithm() == AlgorithmKind::FixedWindow;
        if is_fixed {
            let says = || format!("{most} units were admitted in one window");
            self.0
                .must(most <= limit + beyond + self.0.reference.excused(), says);
        }
    }

    /// All of a fixed window that was not lost could be used.
    fn check_used_up(&self) {
        let world = self.0.world;
        let is_fixed = world.quota.algorithm() == AlgorithmKind::FixedWindow;
        if !is_fixed || !world.is_leased() || self.0.was_reset {
            return;
        }
        let (admitted, lost) = self.0.reference.of_window(world, self.0.store_now());
        let says = || format!("{admitted} are admitted and {lost} lost of all");
        self.0.must(admitted + lost == world.quota.limit(), says);
    }
}
