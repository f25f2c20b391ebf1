//! Reading the Redis protocol, versions 2 and 3, as far as a limiter meets it.
//!
//! Attributes are not part of it: servers send none unless they are asked to. What a server says about lengths is believed when the bytes are there, and not before.

pub(super) mod decoder;
mod reader;

#[cfg(test)]
mod reference;
