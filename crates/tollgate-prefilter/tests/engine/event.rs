//! What may happen next.

use tollgate_core::Tick;

/// An event. Messages, processes and requests by their number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Begin(usize, u64),
    /// Whether the other rule denies.
    Execute(usize, bool),
    Deliver(usize),
    Vanish(usize),
    GiveUp(usize),
    Drop(usize),
    NotRun(usize),
    Abandon(usize),
    Cancel(usize),
    Charge(usize),
    Reset(usize),
    Maintain(usize),
    Replace(usize),
    Remove(usize),
    Pass(Tick),
}
