//! The engine under many schedules of the tasks that use it. Deadlocks are found as well: a schedule that ends in one fails.
#![cfg(tollgate_shuttle)]

use std::{sync::Arc, time::Duration};

use shuttle::{
    sync::Mutex,
    thread::{JoinHandle, spawn},
};
use tollgate_core::{
    Check, Consistency, Decision, LeaseShare, MINUTE, Outcome, Quota, Rule, RuleSet, Source, Tick,
    Verdict,
    algorithm::{Algorithm, FixedWindow},
    store::{Fingerprint, Hold, Settlement},
};
use tollgate_prefilter::{
    Begin, Counted, Engine, EngineEvent, FollowUp, LeaseQuery, LeaseReply, LeaseTerms, LocalRules,
    Next, Places, Query, Reply, SlotTerms,
};
use tollgate_test_reference::{WindowGrantor, WindowState};

const SCHEDULES: usize = 1_000;

const KEY: Fingerprint = Fingerprint::from_bits(0x3c6e_f372_fe94_f82b_a54f_f53a_5f1d_36f1);

/// All clocks stand still here, five seconds after a window has begun.
const NOW: Tick = 1_700_000_045_000_000;

fn quota() -> Quota {
    Quota::fixed_window(20, MINUTE)
}

const LEASED: Consistency = Consistency::Leased {
    share: LeaseShare::percent(50),
};

const EVENTUAL: Consistency = Consistency::Eventual {
    interval: Duration::from_millis(50),
    max_unreported: 10,
};

/// A store of one key. It replies at once.
struct Store {
    grantor: WindowGrantor<FixedWindow>,
    state: WindowState<<FixedWindow as Algorithm>::State>,
    /// The units of reports that came, less those of them that were refunded.
    reported: u64,
}

/// A process with its store.
struct Process {
    engine: Arc<Engine>,
    rules: Arc<LocalRules>,
    store: Mutex<Store>,
    /// The time is that of the process: demand has to be counted at first.
    now: Tick,
}

impl Process {
    /// It has a lease of the key, or counts it locally. Four units were admitted.
    fn new(consistency: Consistency) -> Arc<Self> {
        let engine = Engine::new(1, false, SlotTerms::new(15_000_000));
        let rules = RuleSet::new([Rule::new("rule", quota()).consistency(consistency)]);
        let rules = LocalRules::new(
            &engine,
            Arc::new(rules.expect("valid rules")),
            Places::default(),
            |_| None,
        );
        let window = FixedWindow::new(&quota()).expect("a window");
        let terms = LeaseTerms::new(&quota(), 500).expect("it is leased");
        let store = Store {
            grantor: WindowGrantor::new(window, &terms).expect("a window"),
            state: WindowState::default(),
            reported: 0,
        };
        let mut process = Self {
            engine,
            rules,
            store: Mutex::new(store),
            now: NOW - 200_000,
        };
        for cost in [1, 1, 2] {
            assert!(process.request(cost).is_some());
            process.now += 100_000;
        }
        Arc::new(process)
    }

    /// A receipt for the units, if they were admitted.
    fn request(&self, cost: u64) -> Option<Hold> {
        let check = Check::new(0, KEY, cost);
        let decision = match self.rules.begin(&[check], u64::MAX, self.now) {
            Begin::Decided(decision) => decision,
            Begin::Query(query) => self.send(query),
        };
        let verdict = &decision.verdicts()[0];
        let receipt = verdict.hold(check, decision.at());
        (verdict.outcome() == Outcome::Allow).then_some(receipt)
    }

    fn send(&self, mut query: Query) -> Decision {
        let sending = self.engine.fill(&mut query, self.now);
        let reply = self.carry_out(&query);
        drop(sending);
        match query.finish(Ok(reply), self.now) {
            Next::Done(decision, follow_up) => {
                self.follow_up(follow_up);
                decision
            }
            Next::Query(query) => panic!("all states are in one place: {query:?}"),
        }
    }

    fn send_all(&self, queries: Vec<Query>) {
        queries.into_iter().for_each(|query| drop(self.send(query)));
    }

    fn cancel(&self, receipt: Hold) {
        let cancelled = self.rules.settle(&[receipt], Settlement::Cancel, self.now);
        self.follow_up(cancelled);
    }

    fn follow_up(&self, follow_up: FollowUp) {
        for (receipt, how) in follow_up.settle {
            let units = match how {
                Settlement::Refund(units) => units,
                Settlement::Cancel => receipt.check.cost(),
                Settlement::Charge(_) | _ => panic!("nothing is charged"),
            };
            let mut store = self.store.lock().expect("no panic");
            let window = FixedWindow::new(&quota()).expect("a window");
            window.refund(&mut store.state.counts, NOW, receipt.taken, units);
            if receipt.source == Source::Local {
                let left = store.reported.checked_sub(units);
                store.reported = left.expect("it is refunded after it was reported");
            }
        }
        self.send_all(follow_up.queries);
    }

    fn carry_out(&self, query: &Query) -> Reply {
        let mut store = self.store.lock().expect("no panic");
        let Store {
            grantor,
            state,
            reported,
        } = &mut *store;
        let window = FixedWindow::new(&quota()).expect("a window");
        let reports = query.reports.iter().map(|report| {
            window.take(&mut state.counts, NOW, report.cost());
            *reported += report.cost();
            let answer = window.assess(&state.counts, NOW, 0);
            Ok(Counted {
                left: answer.remaining,
                reset_after: answer.reset_after,
            })
        });
        let reports: Vec<_> = reports.collect();
        let mut said = query.leases.first().map(|item| item.query);
        let mut verdicts = Vec::new();
        let mut grant = None;
        for check in &query.checks {
            let said = said.take().unwrap_or_default();
            let (answer, granted) = grantor.acquire(state, NOW, check.cost(), &said);
            verdicts.push(Verdict::new(0, 0, answer, Source::Store));
            grant = granted;
        }
        // A lease that goes back without a request.
        if let Some(LeaseQuery { returned, .. }) = said {
            let said = LeaseQuery {
                returned,
                ..LeaseQuery::default()
            };
            grantor.acquire(state, NOW, 0, &said);
        }
        let lease = LeaseReply {
            is_refused: false,
            grant: Ok(grant),
        };
        let mut reply = Reply::new(Decision::new(NOW, verdicts, |_| true));
        reply.reports = reports.into();
        reply.leases = vec![lease; query.leases.len()].into();
        reply
    }

    /// Everything has gone back, and the store has counted what was admitted.
    fn has_counted(&self, admitted: u64) {
        assert_eq!(self.engine.usage(self.now).units_on_lease, 0);
        assert_eq!(self.engine.usage(self.now).units_unreported, 0);
        assert_eq!(self.engine.counts()[EngineEvent::UnitLost as usize], 0);
        let store = self.store.lock().expect("no panic");
        assert_eq!(store.state.counts.used(), admitted);
    }

    fn flush(&self) {
        self.send_all(self.rules.flush(self.now));
    }
}

fn task<T: Send + 'static>(
    process: &Arc<Process>,
    act: impl FnOnce(&Process) -> T + Send + 'static,
) -> JoinHandle<T> {
    let process = Arc::clone(process);
    spawn(move || act(&process))
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(scenario, SCHEDULES);
}

/// The units that are admitted: all, unless they are cancelled.
fn spend_and_cancel(process: &Process) -> u64 {
    let kept = process.request(1).map_or(0, |it| it.check.cost());
    if let Some(receipt) = process.request(1) {
        process.cancel(receipt);
    }
    kept
}

#[test]
fn units_that_are_reported_while_tickets_are_cancelled_count_once() {
    explore(|| {
        let process = Process::new(EVENTUAL);
        let tasks = [
            task(&process, spend_and_cancel),
            task(&process, spend_and_cancel),
        ];
        let flush = task(&process, Process::flush);
        let large = task(&process, |process| {
            let receipt = process.request(11);
            receipt.map_or(0, |receipt| receipt.check.cost())
        });
        let admitted: u64 = tasks
            .into_iter()
            .map(|it| it.join().expect("it ends"))
            .sum();
        let admitted = admitted + large.join().expect("it ends");
        flush.join().expect("it ends");
        process.flush();
        process.has_counted(4 + admitted);
    });
}

#[test]
fn units_of_a_lease_that_goes_back_while_it_is_spent_count_once() {
    explore(|| {
        let process = Process::new(LEASED);
        let tasks = [
            task(&process, spend_and_cancel),
            task(&process, |process| {
                process.request(4).map_or(0, |it| it.check.cost())
            }),
            task(&process, |process| {
                process.flush();
                0
            }),
        ];
        let admitted: u64 = tasks
            .into_iter()
            .map(|it| it.join().expect("it ends"))
            .sum();
        process.flush();
        process.has_counted(4 + admitted);
    });
}

#[test]
fn nothing_stays_with_a_rule_set_that_is_retired_while_it_is_used() {
    for consistency in [LEASED, EVENTUAL] {
        explore(move || {
            let process = Process::new(consistency);
            let tasks = [
                task(&process, |process| {
                    process.request(4).map_or(0, |it| it.check.cost())
                }),
                task(&process, |process| {
                    process.send_all(process.rules.poll_maintenance(process.now));
                    0
                }),
                task(&process, |process| {
                    process.send_all(process.rules.retire(process.now));
                    // As the store does.
                    while !process.rules.is_reported() {
                        process.flush();
                    }
                    0
                }),
            ];
            let admitted: u64 = tasks
                .into_iter()
                .map(|it| it.join().expect("it ends"))
                .sum();
            process.has_counted(4 + admitted);
        });
    }
}
