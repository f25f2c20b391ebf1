//! The algorithms against exact, slow oracles: big integers, and the whole history instead of a state.

mod agreement;
mod bound;
mod conversion;
mod debt;
mod drift;
mod held_back;
mod history;
mod oracle;
mod refund;
mod refund_converted;
mod tickets;
mod traps;
