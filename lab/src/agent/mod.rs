//! Designs that the engine is compared with: what one process would do about one key.

mod credit;
mod deny_cache;
mod plain;
mod query;
mod which;

pub(crate) use self::{
    query::{InFlightQuery, Step},
    which::Agent,
};
