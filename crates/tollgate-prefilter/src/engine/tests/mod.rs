//! What the engine decides, and what it says to the store.

mod denials;
mod leases;
mod local_usage;
mod maintenance;
mod peeks;
mod subject;
mod waiting;
