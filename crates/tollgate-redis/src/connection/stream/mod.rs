//! Sockets to a server.

#[cfg(test)]
pub(crate) mod memory;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod stream;

pub(crate) use self::stream::Stream;
pub(super) use self::stream::Transport;
