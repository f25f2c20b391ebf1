//! What one process does about one key: the crate's state machines, with what a store's client puts around them.

mod eventual;
mod exact;
mod learned;
mod leased;
mod plain;
mod which;

pub(crate) use self::which::{Agent, Answer, Question, Step};
