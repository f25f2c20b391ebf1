//! The benches of tollgate.
