//! A virtual process: its clock, and what decides in it.

use std::collections::HashMap;

use tollgate_core::Tick;

use crate::{
    agent::Agent,
    clock::ProcessClock,
    consistency::{Consistency, Terms},
    engine::Local,
};

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) clock: ProcessClock,
    /// How often it has died. What was sent in another life is not listened to.
    pub(crate) life: u32,
    pub(crate) decides: Decides,
}

/// What decides in a process.
#[derive(Debug)]
pub(crate) enum Decides {
    Engine(Local),
    /// By key.
    Agents(HashMap<u32, Slot>),
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) agent: Agent,
    /// When it is looked at next.
    pub(crate) look: Option<Tick>,
}

/// One life of a process, and a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) process: u16,
    pub(crate) life: u32,
    pub(crate) key: u32,
}

impl Process {
    pub(crate) fn new(clock: ProcessClock, consistency: Consistency, terms: &Terms) -> Self {
        Self {
            clock,
            life: 0,
            decides: Decides::new(consistency, terms),
        }
    }

    /// It is there again at once, and knows nothing.
    pub(crate) fn die(&mut self, consistency: Consistency, terms: &Terms) {
        self.life += 1;
        self.decides = Decides::new(consistency, terms);
    }
}

impl Decides {
    fn new(consistency: Consistency, terms: &Terms) -> Self {
        match Local::new(consistency, terms) {
            Some(local) => Self::Engine(local),
            None => Self::Agents(HashMap::new()),
        }
    }
}

/// The process, if it still lives.
pub(crate) fn find(processes: &mut [Process], sender: Sender) -> Option<&mut Process> {
    let process = processes.get_mut(usize::from(sender.process))?;
    (process.life == sender.life).then_some(process)
}
