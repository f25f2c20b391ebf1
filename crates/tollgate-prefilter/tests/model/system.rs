//! Where everything stands, and what may happen next.

use std::hash::{Hash, Hasher};

use tollgate_core::Tick;
use tollgate_prefilter::{Ask, Closed, Holder, Lot};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct System<L> {
    /// The time of the processes.
    pub(crate) now: Tick,
    /// The time of the store.
    pub(crate) clock: Tick,
    pub(crate) ledger: L,
    pub(crate) processes: Vec<Process>,
    pub(crate) strays: Vec<Question>,
    pub(crate) steps_back: u8,
    /// All that matters from here on, with times relative to now: what states are told apart by.
    pub(crate) alive: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) holder: Holder,
    pub(crate) question: Option<Question>,
    /// When a unit was spent of a request that is not let through yet.
    pub(crate) pending: Option<Tick>,
    /// What a faulty process hands back once more.
    pub(crate) again: Option<Closed>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) sent: Tick,
    pub(crate) cost: u64,
    pub(crate) ask: Ask,
    /// What is left of a lot in transit, which only a faulty process hands back.
    pub(crate) untracked: u64,
    pub(crate) answer: Option<Answer>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) at: Tick,
    pub(crate) lot: Option<Lot>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// A microsecond passes everywhere.
    Tick,
    /// The store's clock goes back.
    StepBack(Tick),
    /// What was used is forgotten.
    Reset,
    /// A request that says nothing beside its cost reaches the store.
    Plain(u64),
    /// A process answers from its lot.
    Spend(usize, u64),
    /// The same, but the request is not let through yet.
    Begin(usize),
    /// It is not let through after all.
    GiveBack(usize),
    /// A question is sent: its cost, and what is wanted: parked, in transit, ahead. The lot goes back with it.
    Send(usize, u64, (u64, u64, u64)),
    /// The store carries it out.
    Execute(usize),
    /// The answer comes.
    Deliver(usize),
    /// The process waits no longer; the question is lost, or still on its way.
    GiveUp(usize, bool),
    /// The process dies and starts empty; its question is lost, or still on its way.
    Crash(usize, bool),
    /// A question that nobody waits for is carried out.
    ExecuteStray(usize),
    /// Or is lost.
    LoseStray(usize),
}

impl<L> Hash for System<L> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.alive.hash(state);
    }
}
