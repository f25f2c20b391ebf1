//! Where a Redis is.

mod access;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod address;
mod error;
mod parse;
mod parts;
#[cfg(test)]
mod tests;

#[cfg(feature = "redis-1")]
pub(crate) use self::parse::ONLY_DATABASE_0;
pub(crate) use self::{
    access::{Access, Login, Protocol},
    address::{Sentinels, Target},
    error::AddressError,
};
pub use self::{
    address::{Address, Place},
    parts::AddressParts,
};
