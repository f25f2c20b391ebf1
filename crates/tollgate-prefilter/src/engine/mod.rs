//! The engine: everything that a process decides locally, as one value without I/O.

mod begin;
mod bound_rules;
mod counts;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod engine;
mod entry;
mod exchange;
pub(crate) mod limit;
mod local;
mod maintenance;
mod query;
mod reply;
mod request;
mod settle;
mod store_time;
#[cfg(test)]
mod tests;
mod wait;

pub use self::{
    begin::Begin,
    bound_rules::{BoundRules, Places, Step},
    counts::{EngineCounts, EngineUsage},
    engine::{Engine, EngineOptions},
    exchange::LeaseItem,
    query::{Done, FollowUp, Next, Query, Sending},
    reply::{GrantReply, IndexSet, LeaseReply, NoReply, Reply, ReportReply},
    settle::Reset,
};
