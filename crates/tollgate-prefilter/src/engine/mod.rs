//! The engine: everything that a process decides locally, as one value without I/O.

mod begin;
mod bound_rules;
mod counts;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod engine;
pub(crate) mod engine_usage;
mod entry;
mod exchange;
mod index_set;
pub(crate) mod limit;
mod limits;
mod local;
mod maintenance;
mod places;
mod query;
mod reply;
mod request;
mod reset;
mod settle;
mod split;
mod store_time;
#[cfg(test)]
mod tests;
mod wait;
mod windows;

pub use self::{
    begin::Begin,
    bound_rules::BoundRules,
    counts::EngineCounts,
    engine::{Engine, EngineOptions},
    engine_usage::EngineUsage,
    exchange::LeaseItem,
    index_set::IndexSet,
    places::Places,
    query::{Done, FollowUp, Next, Query, Sending},
    reply::{GrantReply, LeaseReply, NoReply, Reply, ReportReply},
    reset::Reset,
};
