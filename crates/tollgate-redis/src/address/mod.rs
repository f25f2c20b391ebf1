//! Where a Redis is.

#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod address;
mod parse;
#[cfg(test)]
mod tests;

pub(crate) use self::address::{Access, Login, Sentinels, Target};
pub use self::address::{Address, AddressParts, Place};
#[cfg(feature = "redis-1")]
pub(crate) use self::parse::needs_tls;
