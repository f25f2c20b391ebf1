//! Where a Redis is.

mod access;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod address;
mod parse;
mod parts;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    access::{Access, Login},
    address::{Sentinels, Target},
    parse::needs_tls,
};
pub use self::{
    address::{Address, Place},
    parts::AddressParts,
};
