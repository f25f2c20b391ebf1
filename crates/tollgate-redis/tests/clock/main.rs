//! Clocks that jump, and clocks that differ.

#[path = "../support/mod.rs"]
mod support;

mod jumps;
mod skew;
