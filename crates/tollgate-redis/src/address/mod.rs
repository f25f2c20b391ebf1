//! Where a Redis is.

mod access;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod address;
mod error;
mod parse;
#[cfg(test)]
mod tests;

pub use self::address::Address;
#[cfg(feature = "redis-1")]
pub(crate) use self::{access::Library, parse::ONLY_DATABASE_0};
pub(crate) use self::{
    access::{Access, Login, Protocol, TcpOptions},
    address::{ForeignTls, Place, Sentinels, Target},
    error::AddressError,
};
