//! The examples of tollgate.
