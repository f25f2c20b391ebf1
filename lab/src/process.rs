//! A virtual process: its clock, and an agent for each key that it was asked for.

use std::collections::HashMap;

use tollgate_core::Tick;

use crate::{agent::Agent, clock::ProcessClock};

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) clock: ProcessClock,
    /// How often it has died. What was sent in another life is not listened to.
    pub(crate) life: u32,
    pub(crate) agents: HashMap<u32, Slot>,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) agent: Agent,
    /// When it is looked at next.
    pub(crate) look: Option<Tick>,
}

/// An agent of one life of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) process: u16,
    pub(crate) life: u32,
    pub(crate) key: u32,
}

impl Process {
    pub(crate) fn new(clock: ProcessClock) -> Self {
        Self {
            clock,
            life: 0,
            agents: HashMap::new(),
        }
    }

    /// It is there again at once, and knows nothing.
    pub(crate) fn die(&mut self) {
        self.life += 1;
        self.agents.clear();
    }
}

/// The agent, if its process still lives.
pub(crate) fn find(processes: &mut [Process], sender: Sender) -> Option<(&mut Slot, ProcessClock)> {
    let process = processes.get_mut(usize::from(sender.process))?;
    if process.life != sender.life {
        return None;
    }
    Some((process.agents.get_mut(&sender.key)?, process.clock))
}
