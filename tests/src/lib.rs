//! The tests of tollgate.
