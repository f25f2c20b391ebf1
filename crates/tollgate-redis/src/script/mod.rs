//! The script that decides, and its language: rules, requests and replies as the script has them. No I/O.
//!
//! ```text
//! reply ── queued ── call ── args ── encoder
//! text
//! ```

pub(crate) mod args;
pub(crate) mod call;
pub(crate) mod encoder;
mod queued;
pub(crate) mod reply;
pub(crate) mod text;
