//! The algorithms against exact, slow oracles: big integers, and the whole history instead of a state.

mod agreement;
mod bound;
mod debt;
mod history;
mod oracle;
mod refund;
mod refund_converted;
mod traps;
