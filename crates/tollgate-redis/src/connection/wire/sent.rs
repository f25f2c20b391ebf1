//! Calls that were written, in the order in which their answers come.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::connection::{call::Waiting, request::push_asking};

/// Calls without an answer, and how much of them has left.
#[derive(Debug, Default)]
pub(super) struct Sent {
    calls: VecDeque<Entry>,
    /// Bytes that were written to the socket since the connection began.
    written: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None` once its deadline has passed, or for a command that is none. The answer will still come.
    call: Option<Waiting>,
    /// Where it begins and ends in the bytes of the connection.
    begin: u64,
    end: u64,
}

impl Sent {
    /// Appends a call to `out`, of which nothing is written yet.
    pub(super) fn put(&mut self, call: Waiting, out: &mut Vec<u8>, with_body: bool) {
        if call.is_asking() {
            // Nobody wants its answer; what it is good for shows in the next one.
            push_asking(out);
            self.push(None, out.len());
        }
        call.write(out, with_body);
        self.push(Some(call), out.len());
    }

    fn push(&mut self, call: Option<Waiting>, length: usize) {
        let begin = self.calls.back().map_or(self.written, |last| last.end);
        self.calls.push_back(Entry {
            call,
            // The call before may have been answered and be gone from the list.
            begin: begin.max(self.written),
            end: self.written + length as u64,
        });
    }

    pub(super) fn written(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The call that the next answer is for; `Some(None)` if nobody waits for it any more.
    pub(super) fn answered(&mut self) -> Option<Option<Waiting>> {
        self.calls.pop_front().map(|entry| entry.call)
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let deadlines = self.calls.iter().filter_map(|entry| entry.call.as_ref());
        deadlines.map(Waiting::deadline).min()
    }

    /// Hands out the calls whose deadline has passed, and stops with `true` at one that has not left as a whole.
    pub(super) fn expire(&mut self, now: Instant, mut fail: impl FnMut(Waiting)) -> bool {
        for entry in &mut self.calls {
            if let Some(call) = entry.call.take_if(|call| call.deadline() <= now) {
                if entry.end > self.written {
                    entry.call = Some(call);
                    return true;
                }
                fail(call);
            }
        }
        false
    }

    /// Hands out every call, with whether any of it was written.
    pub(super) fn drain(&mut self, mut fail: impl FnMut(Waiting, bool)) {
        for entry in self.calls.drain(..) {
            if let Some(call) = entry.call {
                fail(call, entry.begin < self.written);
            }
        }
    }
}
