//! What one process does about one key: the crate's state machines, with what a store's client puts around them.

mod credit;
mod eventual;
mod exact;
mod learned;
mod leased;
mod plain;
mod query;
mod which;

pub(crate) use self::{
    query::{Answer, InFlightQuery, Step},
    which::Agent,
};
