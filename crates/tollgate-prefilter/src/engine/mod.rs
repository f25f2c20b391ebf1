//! The engine: everything that a process decides locally, as one value without I/O.

mod begin;
mod bound_rules;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod engine;
pub(crate) mod engine_usage;
mod events;
mod exchange;
mod index_set;
mod leases;
pub(crate) mod limit;
mod limits;
mod local;
mod maintenance;
mod query;
mod reply;
mod reports;
mod request;
mod reset;
mod settle;
mod split;
mod store_rules;
mod store_time;
#[cfg(test)]
mod tests;
mod wait;
mod windows;

pub use self::{
    begin::Begin,
    bound_rules::BoundRules,
    engine::{Engine, EngineOptions},
    engine_usage::EngineUsage,
    events::{EngineEvents, LeaseEvent, ReportEvent},
    exchange::LeaseItem,
    index_set::IndexSet,
    query::{Done, FollowUp, Next, Query},
    reply::{GrantReply, LeaseReply, NoReply, Reply, ReportReply},
    reset::Reset,
    store_rules::StoreRules,
};
