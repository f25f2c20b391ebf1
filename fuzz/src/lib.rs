//! The parts of tollgate-redis that read and write the protocol of Redis, by their own files: they are private there.

mod connection;

pub use self::connection::{compare_command, compare_reply};
