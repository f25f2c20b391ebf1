//! Calls that were written, in the order in which their answers come.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::connection::queue::QueuedCommand;

/// Calls without an answer, and how much of them has left.
#[derive(Default)]
pub(super) struct SentCommands {
    calls: VecDeque<Entry>,
    /// The commands that carry them.
    commands: VecDeque<WrittenCommand>,
    /// Bytes that were written to the socket since the connection began.
    written: u64,
}

/// A call that was sent.
pub(super) struct Entry {
    /// `None` once its deadline has passed. The answer will still come.
    pub(super) call: Option<QueuedCommand>,
    /// How many checks of the command are its own.
    pub(super) checks: usize,
}

struct WrittenCommand {
    /// How many calls it carries.
    calls: usize,
    /// Where it begins and ends in the bytes of the connection.
    begin: u64,
    end: u64,
    sent: Option<Instant>,
}

impl SentCommands {
    /// Calls that were added, as one command, to a buffer that now has `length` bytes, none of them written yet.
    /// `sent` is the time, where somebody wants to know how long the answer takes.
    pub(super) fn push(
        &mut self,
        calls: impl Iterator<Item = QueuedCommand>,
        length: usize,
        sent: Option<Instant>,
    ) {
        let before = self.calls.len();
        self.calls.extend(calls.map(|call| Entry {
            checks: call.command.answers().unwrap_or(0),
            call: Some(call),
        }));
        let begin = self.commands.back().map_or(self.written, |last| last.end);
        self.commands.push_back(WrittenCommand {
            calls: self.calls.len() - before,
            // The command before may have been answered and be gone from the list.
            begin: begin.max(self.written),
            end: self.written + length as u64,
            sent,
        });
    }

    pub(super) fn written(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    /// How many bytes are to be written until the first command has left.
    pub(super) fn first_command(&self) -> usize {
        let end = self.commands.front().map_or(0, |first| first.end);
        // A buffer is filled in memory.
        end.saturating_sub(self.written) as usize
    }

    /// How many calls there are.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// When the command of the next answer was sent, and its calls; `None` if there is none.
    pub(super) fn answered(
        &mut self,
    ) -> Option<(Option<Instant>, impl Iterator<Item = Entry> + '_)> {
        let command = self.commands.pop_front()?;
        Some((command.sent, self.calls.drain(..command.calls)))
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let deadlines = self.calls.iter().filter_map(|entry| entry.call.as_ref());
        deadlines.map(|call| call.deadline).min()
    }

    /// Hands out the calls whose deadline has passed, and stops with `true` at one that has not left as a whole.
    pub(super) fn expire(&mut self, now: Instant, mut fail: impl FnMut(QueuedCommand)) -> bool {
        let mut calls = self.calls.iter_mut();
        for command in &self.commands {
            for entry in calls.by_ref().take(command.calls) {
                if let Some(call) = entry.call.take_if(|call| call.deadline <= now) {
                    if command.end > self.written {
                        entry.call = Some(call);
                        return true;
                    }
                    fail(call);
                }
            }
        }
        false
    }

    /// Hands out every call, with whether any of its command was written.
    pub(super) fn drain(&mut self, mut fail: impl FnMut(QueuedCommand, bool)) {
        let mut calls = self.calls.drain(..);
        for command in self.commands.drain(..) {
            for entry in calls.by_ref().take(command.calls) {
                if let Some(call) = entry.call {
                    fail(call, command.begin < self.written);
                }
            }
        }
    }
}
