//! Calls of the script: keys and arguments.
//!
//! A call is filled with one request, or with all that wait. Each is decided on its own.

mod args;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod call;
mod state_keys;

pub(crate) use self::call::{Call, RequestLayout, Settled};
