//! A virtual process: its clock, and what decides in it.

use crate::{
    clock::ProcessClock,
    consistency::{Consistency, Terms},
    engine::Local,
};

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) clock: ProcessClock,
    /// How often it has died. What was sent in another life is not listened to.
    pub(crate) life: u32,
    pub(crate) local: Local,
}

/// One life of a process, and a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) process: u16,
    pub(crate) life: u32,
    pub(crate) key: u32,
}

impl Process {
    /// `None` if the consistency is not simulated for the quota.
    pub(crate) fn new(
        clock: ProcessClock,
        consistency: Consistency,
        terms: &Terms,
    ) -> Option<Self> {
        Some(Self {
            clock,
            life: 0,
            local: Local::new(consistency, terms)?,
        })
    }

    /// It is there again at once, and knows nothing.
    pub(crate) fn die(&mut self, consistency: Consistency, terms: &Terms) {
        self.life += 1;
        // As in its life before.
        if let Some(local) = Local::new(consistency, terms) {
            self.local = local;
        }
    }
}

/// The process, if it still lives.
pub(crate) fn find(processes: &mut [Process], sender: Sender) -> Option<&mut Process> {
    let process = processes.get_mut(usize::from(sender.process))?;
    (process.life == sender.life).then_some(process)
}
