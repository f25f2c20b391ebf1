//! Tests of what is private to the crate, held to real servers: connections, the script, names, and the guide's figures.

pub(crate) mod connection;
mod guide;
mod keys;
mod parity;
mod script;
mod scripted;
