//! The processes, the network between them and the store, and what any of them may do.
//!
//! What a process wants and when it returns leases is not decided here: the checker tries everything. The leases, their deadlines
//! and what is returned are the real [`LeaseHolder`](tollgate_prefilter::LeaseHolder)'s, what the store does is the real grantor's.

use std::fmt::Debug;

use smallvec::smallvec;
use tollgate_core::Tick;
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};

use crate::{
    alive::Bytes,
    explore::{Model, Property},
    fault::Fault,
    system::{Action, Process, System},
};

/// What has to hold everywhere.
pub(crate) const NO_MORE_PASSES: &str = "no more than the limit is admitted";
pub(crate) const NOTHING_IS_LOST: &str = "no unit of a window is lost";

/// One thing to explore.
#[derive(Clone, Debug)]
pub(crate) struct World<L> {
    /// The store and the oracle as they begin.
    pub(crate) store: L,
    pub(crate) terms: LeaseTerms,
    pub(crate) processes: usize,
    /// The costs of requests that are answered from a lease, or that reach the store and say nothing else.
    pub(crate) costs: &'static [u64],
    /// The costs of requests that say something to the store; 0 is a lease that comes back alone.
    pub(crate) queries: &'static [u64],
    /// Units wanted on lease.
    pub(crate) wants: &'static [u64],
    /// Units wanted in a scheduled lease, where there is none.
    pub(crate) ahead: &'static [u64],
    /// Queries that no process waits for any more and that may still reach the store.
    pub(crate) strays: usize,
    /// For how many ticks a query is on its way at most, if there is a bound.
    pub(crate) patience: Option<Tick>,
    /// How often the store's clock goes back, by each of so many ticks.
    pub(crate) steps_back: (u8, &'static [Tick]),
    /// Whether requests are turned away after their units were spent, and give them back.
    pub(crate) giving_back: bool,
    /// Whether callers go away while they wait, queries are refused before they are sent, and processes bind their rules
    /// anew.
    pub(crate) leaving: bool,
    /// Whether the limit changes.
    pub(crate) changes: bool,
    /// Whether the key is reset now and then.
    pub(crate) resets: bool,
    pub(crate) fault: Option<Fault>,
}

impl<L: ModelStore> World<L> {
    /// Two processes in which all goes its way.
    pub(crate) fn new(store: L, terms: LeaseTerms) -> Self {
        Self {
            store,
            terms,
            processes: 2,
            costs: &[1],
            queries: &[0],
            wants: &[0, 9],
            ahead: &[0],
            strays: 0,
            patience: None,
            steps_back: (0, &[]),
            giving_back: false,
            leaving: false,
            changes: false,
            resets: false,
            fault: None,
        }
    }

    pub(crate) fn with(self, fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..self
        }
    }

    /// Whether it is followed where each unit of a window is.
    pub(crate) fn follows_units(&self) -> bool {
        self.terms.window.is_some() && (self.giving_back || self.leaving)
    }
}

impl<L: ModelStore> Model for World<L> {
    type State = System<L>;
    type Action = Action;

    fn first_state(&self) -> System<L> {
        System {
            now: L::START,
            clock: L::START,
            store: self.store.clone(),
            processes: smallvec![Process::default(); self.processes],
            strays: Vec::new(),
            steps_back: self.steps_back.0,
            lost: [0; 2],
        }
    }

    fn actions(&self, system: &System<L>, actions: &mut Vec<Action>) {
        // An action that is left out here because it changes nothing saves a copy of the state.
        // What breaks a promise once need not be followed further.
        if !system.store.holds() {
            return;
        }
        actions.push(Action::Tick);
        actions.extend(self.costs.iter().map(|cost| Action::Plain(*cost)));
        if self.resets {
            actions.push(Action::Reset);
        }
        if self.changes {
            actions.push(Action::Change);
        }
        if system.steps_back > 0 {
            actions.extend(self.steps_back.1.iter().map(|by| Action::StepBack(*by)));
        }
        for (of, process) in system.processes.iter().enumerate() {
            // Which process is which does not matter.
            if system.processes[..of].contains(process) {
                continue;
            }
            let holds = process.holder.until().is_some();
            if holds {
                actions.extend(self.costs.iter().map(|cost| Action::Spend(of, *cost)));
            }
            if self.giving_back && holds {
                actions.push(Action::Begin(of));
            }
            if self.leaving {
                match &process.query {
                    None => actions.push(Action::Rebind(of)),
                    Some(query) => {
                        if !query.is_dropped && query.cost > 0 {
                            actions.push(Action::Drop(of));
                        }
                        if query.answer.is_none() {
                            actions.push(Action::Refuse(of));
                        }
                    }
                }
            }
            if process.pending.is_some() {
                actions.push(Action::GiveBack(of));
            }
            match &process.query {
                None => {
                    let no_other = process.holder.held(system.now) > 0;
                    for ahead in self.ahead.iter().filter(|units| **units == 0 || !no_other) {
                        for tracked in self.wants {
                            let wants = (*tracked, *ahead);
                            let send = |cost: &u64| Action::Send(of, *cost, wants);
                            actions.extend(self.queries.iter().map(send));
                        }
                    }
                }
                Some(query) if query.answer.is_none() => {
                    actions.push(Action::Execute(of));
                    if system.strays.len() < self.strays {
                        actions.extend([Action::GiveUp(of, true), Action::Crash(of, true)]);
                    }
                }
                Some(_) => actions.push(Action::Deliver(of)),
            }
            if process.query.is_some() {
                actions.push(Action::GiveUp(of, false));
            }
            if *process != Process::default() {
                actions.push(Action::Crash(of, false));
            }
        }
        for stray in 0..system.strays.len() {
            actions.extend([Action::ExecuteStray(stray), Action::LoseStray(stray)]);
        }
    }

    fn take(&self, system: &mut System<L>, action: Action) -> bool {
        self.step(system, action)
    }

    fn fingerprint(&self, system: &System<L>) -> u64 {
        self.alive(system)
    }

    fn properties() -> Vec<Property<Self>> {
        vec![
            (NO_MORE_PASSES, |_, system| system.store.holds()),
            (NOTHING_IS_LOST, |world, system| {
                // What is lost is followed only there; and a reset forgets who has what.
                !world.follows_units() || world.resets || system.loses_nothing()
            }),
            ("what is granted is in the exact limit", |world, system| {
                let held = |process: &Process| {
                    let mut holder = process.holder;
                    // As if the answer came now; while it is on its way, nothing is held.
                    if let Some(query) = &process.query
                        && let Some(answer) = query.answer
                    {
                        let times = (query.sent, system.now);
                        let _ = holder.on_granted(times, answer.at, answer.grant, &world.terms);
                    }
                    holder.held(system.now)
                };
                let held = system.processes.iter().map(held).sum();
                system.store.covers(system.clock, held)
            }),
        ]
    }
}

// The store, and what was really admitted.

/// A grantor with its state, and an exact limit that knows what was admitted where and when it was.
pub(crate) trait ModelStore: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// When a world begins.
    const START: Tick;

    /// The store carries out a query.
    fn execute(
        &mut self,
        fault: Option<Fault>,
        clock: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (bool, Option<Grant>);

    /// The store forgets what was used, and so does the exact limit.
    fn reset(&mut self, fault: Option<Fault>, clock: Tick);

    /// A process has let through so many units.
    fn admit(&mut self, units: u64);

    /// A process has spent a unit on a request that may not be let through.
    fn begin(&mut self);

    /// So many of these units, which were counted in this window, were not let through.
    fn take_back(&mut self, window: Option<u64>, units: u64);

    /// The store is to take back units that were granted in this window.
    fn refund(&mut self, clock: Tick, window: u64, units: u64);

    /// The limit is another one.
    fn change(&mut self);

    /// So many units that are spent, or held beyond what is tracked, are out when the key is reset: they may come back, and
    /// exceed the limit.
    fn excuse(&mut self, units: u64);

    /// A microsecond has passed.
    fn tick(&mut self, now: Tick);

    /// Whether no more was admitted than the exact limit has.
    fn holds(&self) -> bool;

    /// Whether the exact limit has what the store has left and what processes hold, together.
    fn covers(&self, clock: Tick, held: u64) -> bool;

    /// Whether all that is counted now was admitted, or is held under the number of a generation or a window, or was lost in
    /// this window or in the one before. Always true for a bucket: what it loses comes back.
    fn accounts_for(&self, clock: Tick, held: &[ReturnedLease], lost: [u64; 2]) -> bool;

    /// The number of the generation or the window of leases that are granted now.
    fn generation(&self, clock: Tick) -> u64;

    /// What matters of the time at which the store has answered.
    fn phase(&self, at: Tick) -> u8;

    /// All that matters of it from here on, if the clock may or may not go back.
    fn alive(&self, clock: Tick, goes_back: bool, bytes: &mut Bytes);
}
