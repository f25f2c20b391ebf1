//! Reading the Redis protocol, versions 2 and 3, as far as a limiter meets it.
//!
//! What a server says about lengths is believed when the bytes are there, and not before.

pub(super) mod decoder;
mod reader;

#[cfg(test)]
mod reference;
