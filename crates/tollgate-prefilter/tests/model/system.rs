//! Where everything stands, and what may happen next.

use smallvec::SmallVec;
use tollgate_core::Tick;
use tollgate_prefilter::{Grant, LeaseHolder, LeaseQuery, ReturnedLease};

use crate::{
    explore::{Bounds, Model, WHOLE, explore},
    world::{ModelStore, NO_MORE_PASSES, NOTHING_IS_LOST, World},
};

#[derive(Debug, PartialEq)]
pub(crate) struct System<L> {
    /// The time of the processes.
    pub(crate) now: Tick,
    /// The time of the store.
    pub(crate) clock: Tick,
    pub(crate) store: L,
    pub(crate) processes: SmallVec<[Process; 2]>,
    pub(crate) strays: Vec<Query>,
    pub(crate) steps_back: u8,
    /// Units of this window, and of the one before, that a crash or an answer that was lost has cost.
    pub(crate) lost: [u64; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) holder: LeaseHolder,
    pub(crate) query: Option<Query>,
    /// A unit that was spent on a request which is not let through yet, or may be refunded.
    pub(crate) pending: Option<Pending>,
    /// What a faulty process returns once more.
    pub(crate) again: Option<ReturnedLease>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pending {
    pub(crate) spent: Tick,
    /// The window in which it is counted, and when the lease ends that it was spent of.
    pub(crate) window: Option<u64>,
    pub(crate) until: Option<Tick>,
    /// The key was reset since: it is not counted any more.
    pub(crate) is_forgotten: bool,
    /// The process has bound its rules anew since.
    pub(crate) is_of_another: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Query {
    pub(crate) sent: Tick,
    pub(crate) cost: u64,
    pub(crate) query: LeaseQuery,
    /// Its caller has gone, and the process still processes the reply.
    pub(crate) is_dropped: bool,
    /// The key was reset since it was carried out.
    pub(crate) is_forgotten: bool,
    pub(crate) answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) at: Tick,
    pub(crate) fits: bool,
    pub(crate) grant: Option<Grant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// A microsecond passes everywhere.
    Tick,
    /// The store's clock goes back.
    StepBack(Tick),
    /// What was used is forgotten.
    Reset,
    /// A request without anything about leases reaches the store.
    Plain(u64),
    /// A process answers from its lease.
    Spend(usize, u64),
    /// The same, but the request is not let through yet.
    Begin(usize),
    /// It is not let through after all: another rule has denied, or its caller has gone; or it was, and is refunded.
    GiveBack(usize),
    /// The caller of a query has gone.
    Drop(usize),
    /// A query is refused before it is sent.
    Refuse(usize),
    /// The process binds its rules anew: what was held goes back.
    Rebind(usize),
    /// The limit is another one.
    Change,
    /// A query is sent: its cost, and what is wanted: on lease, ahead. The lease goes back with it.
    Send(usize, u64, (u64, u64)),
    /// The store carries it out.
    Execute(usize),
    /// The answer comes.
    Deliver(usize),
    /// The process waits no longer; the query is lost, or still on its way.
    GiveUp(usize, bool),
    /// The process dies and starts empty; its query is lost, or still on its way.
    Crash(usize, bool),
    /// A query that no process waits for is carried out.
    ExecuteStray(usize),
    /// Or is lost.
    LoseStray(usize),
}

impl<L: ModelStore> System<L> {
    /// Whether all that the store counts was admitted, or is somewhere, or was lost in a way that is allowed to cost.
    pub(crate) fn loses_nothing(&self) -> bool {
        let mut held: SmallVec<[ReturnedLease; 4]> = SmallVec::new();
        for process in &self.processes {
            // Also what has run out: it goes back.
            let mut holder = process.holder;
            held.extend(holder.take_out(self.now));
            if let Some(query) = &process.query {
                held.extend(query.on_its_way());
            }
        }
        held.extend(self.strays.iter().filter_map(Query::on_its_way));
        self.store.accounts_for(self.clock, &held, self.lost)
    }
}

impl Query {
    /// The units that are on their way with it, or with its answer.
    pub(crate) fn on_its_way(&self) -> Option<ReturnedLease> {
        match self.answer {
            None => self.query.returned,
            Some(answer) => match answer.grant? {
                Grant::Tracked {
                    units, generation, ..
                } => Some(ReturnedLease {
                    size: units,
                    left: units,
                    generation,
                }),
                _ => None,
            },
        }
    }
}

impl<L: Clone> Clone for System<L> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            // All at once: by itself it copies one after the other.
            processes: SmallVec::from_slice(&self.processes),
            strays: self.strays.clone(),
            ..*self
        }
    }
}

// Explores worlds.

/// Explores everything; nothing may be wrong anywhere.
pub(crate) fn holds<L: ModelStore>(world: World<L>) {
    nothing_is_wrong(world, WHOLE);
}

/// The same, of a world that takes long to explore to its end: all that can happen in so many steps, or in `TOLLGATE_MODEL_STEPS`.
pub(crate) fn holds_for<L: ModelStore>(steps: usize, world: World<L>) {
    let depth = match std::env::var("TOLLGATE_MODEL_STEPS") {
        Ok(text) => text.parse().expect("a number of steps"),
        Err(_) => steps,
    };
    nothing_is_wrong(world, Bounds { depth, ..WHOLE });
}

fn nothing_is_wrong<L: ModelStore>(world: World<L>, bounds: Bounds) {
    let explored = explore(world, &World::properties(), bounds);
    eprintln!(
        "{} states of {} steps, the furthest {} steps away",
        explored.states, explored.steps, explored.depth
    );
    if let Some((name, way)) = &explored.broken {
        for (state, action) in way {
            eprintln!(
                "now {} lost {:?} {:?} | {:?} | ok {} -> {:?}",
                state.now,
                state.lost,
                state.store,
                state.processes,
                state.loses_nothing(),
                action
            );
        }
        panic!("not so: {name}: {:?}", explored.actions());
    }
}

/// Explores until more than the limit was admitted, which has to happen.
pub(crate) fn is_caught<L: ModelStore>(world: World<L>) {
    breaks(NO_MORE_PASSES, world);
}

/// Explores until a unit of a window was lost, which has to happen.
pub(crate) fn loses<L: ModelStore>(world: World<L>) {
    breaks(NOTHING_IS_LOST, world);
}

fn breaks<L: ModelStore>(broken: &'static str, world: World<L>) {
    let mut properties = World::properties();
    properties.retain(|it| it.0 == broken);
    let explored = explore(world, &properties, WHOLE);
    let actions = explored.actions();
    let actions = actions.unwrap_or_else(|| panic!("{:?} was not found", explored.world.fault));
    eprintln!(
        "{:?}: {} states, {actions:?}",
        explored.world.fault, explored.states
    );
}
