//! Reading the Redis protocol, version 2: every server and every proxy speaks it, and a limiter needs nothing of version 3.
//!
//! What a server says about lengths is believed when the bytes are there, and not before.

pub(super) mod decoder;
mod reader;

#[cfg(test)]
mod reference;
