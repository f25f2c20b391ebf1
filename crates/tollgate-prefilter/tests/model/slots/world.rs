//! The processes, the network between them and the store, and what any of them may do.
//!
//! When a process renews is not decided here: the checker tries everything. What it says, and what it does with a reply, is the real
//! [`SlotHolder`](tollgate_prefilter::SlotHolder)'s; what the store does is the real [`SlotGrantor`]'s.

use tollgate_core::Tick;
use tollgate_prefilter::{SlotOwner, SlotTerms};
use tollgate_test_reference::{SlotGrantor, SlotState};

use crate::{
    explore::{Model, Property},
    slots::{
        fault::Fault,
        system::{Action, Budget, Process, System},
    },
};

/// What has to hold everywhere.
pub(super) const ABOVE: &str = "no request starts above the limit while all slots in use are known";
pub(super) const UNKNOWN: &str = "no request starts on a slot that the store has forgotten";
pub(super) const ALONE: &str = "no process runs more requests than the limit";
pub(super) const MISSING: &str = "a slot that was lost is free again after a term and a delay";
pub(super) const LEAKED: &str = "a process that has nothing in use occupies no slots";
pub(super) const DENIED: &str = "no request is denied while slots are free";
pub(super) const LATE: &str = "what was not sent puts no renewal off";

/// One thing to explore.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotWorld {
    pub(super) limit: u32,
    pub(super) processes: usize,
    /// The requests that a process runs and begins at the same time.
    pub(super) requests: u32,
    /// How long a message may be on its way to the store. A reply may take for ever.
    pub(super) delay: Tick,
    /// Releases and renewals of a process in flight; messages of a process that it does not wait for any more.
    pub(super) renewals: usize,
    pub(super) strays: usize,
    /// Whether a process may hear that a message did not leave it.
    pub(super) unsent: bool,
    pub(super) budget: Budget,
    /// Whether it is followed since when each slot is missing.
    pub(super) follows: bool,
    pub(super) fault: Option<Fault>,
}

/// In ticks.
pub(super) const TERM: Tick = 2;

impl SlotWorld {
    /// The clock of a process may fall behind by a tick in a term.
    pub(super) fn terms(&self) -> SlotTerms {
        let margin = Tick::from(self.budget.drift);
        SlotTerms {
            margin,
            ..SlotTerms::new(TERM)
        }
    }

    pub(super) fn grantor(&self) -> SlotGrantor {
        SlotGrantor::new(self.limit, TERM)
    }

    /// Whether a process still keeps a key.
    pub(super) fn is_listed(&self, process: &Process) -> bool {
        match self.fault {
            Some(Fault::LeavesEarly) => {
                process.running() > 0 || process.in_flight.iter().any(|it| it.message.want > 0)
            }
            _ => process.holder.is_listed(),
        }
    }
}

impl Model for SlotWorld {
    type State = System;
    type Action = Action;

    fn first_state(&self) -> System {
        let owners = (1..=self.processes as u64).map(SlotOwner);
        System {
            now: 1_000,
            clock: 1_000,
            store: SlotState::default(),
            processes: owners.map(Process::new).collect(),
            gone: Vec::new(),
            next_owner: self.processes as u64 + 1,
            left: self.budget,
            is_disturbed: false,
            wrong: None,
        }
    }

    fn actions(&self, system: &System, actions: &mut Vec<Action>) {
        // What went wrong once need not be followed further.
        if system.wrong.is_some() {
            return;
        }
        actions.push(Action::Tick);
        let budget = [
            (system.left.drift, Action::Drift),
            (system.left.resets, Action::Reset),
            (system.left.forward, Action::Forward),
            (system.left.back, Action::Back),
        ];
        actions.extend(budget.iter().filter(|it| it.0 > 0).map(|it| it.1));
        for (of, process) in system.processes.iter().enumerate() {
            let waited = || process.in_flight.iter().filter(|it| it.is_waited);
            let begun = waited().map(|it| it.message.want).sum::<u32>();
            let renewals = waited().filter(|it| it.message.want == 0).count();
            let is_listed = self.is_listed(process);
            if process.running() + begun < self.requests {
                actions.push(Action::Acquire(of));
            }
            if is_listed && renewals < self.renewals {
                actions.push(Action::Renew(of));
                if self.fault == Some(Fault::CountedBefore) && process.composed.is_none() {
                    actions.push(Action::Compose(of));
                }
            }
            if renewals < self.renewals {
                if process.valid > 0 {
                    actions.push(Action::End(of, true));
                }
                if process.outlived > 0 {
                    actions.push(Action::End(of, false));
                }
            }
            let strays = process.in_flight.iter().filter(|it| !it.is_waited).count();
            for (index, it) in process.in_flight.iter().enumerate() {
                if it.reply.is_none() {
                    actions.push(Action::Execute(of, index));
                } else {
                    actions.push(Action::Deliver(of, index));
                }
                actions.push(Action::GiveUp(of, index, false));
                // A renewal that was not sent is said again, as one that was lost.
                if self.unsent && it.message.want > 0 && it.is_waited && it.reply.is_none() {
                    actions.push(Action::NotSent(of, index));
                }
                if it.is_waited && it.reply.is_none() && strays < self.strays {
                    actions.push(Action::GiveUp(of, index, true));
                }
            }
            if system.left.crashes > 0 && process.seq > 0 {
                actions.push(Action::Crash(of));
            }
        }
        for (of, gone) in system.gone.iter().enumerate() {
            for stray in 0..gone.strays.len() {
                actions.extend([Action::ExecuteGone(of, stray), Action::LoseGone(of, stray)]);
            }
        }
    }

    fn take(&self, system: &mut System, action: Action) -> bool {
        let changes = self.step(system, action);
        if changes {
            self.follow(system);
        }
        changes
    }

    fn fingerprint(&self, system: &System) -> u64 {
        self.alive(system)
    }

    fn properties() -> Vec<Property<Self>> {
        vec![
            (ABOVE, |_, system| system.wrong != Some(ABOVE)),
            (UNKNOWN, |_, system| system.wrong != Some(UNKNOWN)),
            (ALONE, |_, system| system.wrong != Some(ALONE)),
            (MISSING, |_, system| system.wrong != Some(MISSING)),
            (LEAKED, |_, system| system.wrong != Some(LEAKED)),
            (DENIED, |_, system| system.wrong != Some(DENIED)),
            (LATE, |_, system| system.wrong != Some(LATE)),
        ]
    }
}
