//! Header fields (docs later)
