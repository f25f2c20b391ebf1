//! Where a Redis is.

mod access;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod address;
mod parse;
mod parts;
#[cfg(test)]
mod tests;

#[cfg(feature = "redis-1")]
pub(crate) use self::parse::needs_tls;
pub(crate) use self::{
    access::{Access, Login},
    address::{Sentinels, Target},
};
pub use self::{
    address::{Address, Place},
    parts::AddressParts,
};
