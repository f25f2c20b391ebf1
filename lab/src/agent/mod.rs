//! What one process does about one key: the crate's state machines, with what a store's client puts around them.

mod credit;
mod eventual;
mod exact;
mod learned;
mod leased;
mod plain;
mod question;
mod which;

pub(crate) use self::{
    question::{Answer, Question, Step},
    which::Agent,
};
