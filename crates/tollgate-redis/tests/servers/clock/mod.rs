//! Clocks that jump, and clocks that differ.

mod jumps;
mod skew;
