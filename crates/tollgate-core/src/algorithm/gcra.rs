//! GCRA
