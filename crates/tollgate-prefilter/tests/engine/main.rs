//! The engine as a store drives it, in every order in which the events of a few requests can come.
//!
//! A world has one key, one or two rules, one or two processes with an engine each, and one store. Every order of its events is
//! carried out on fresh engines, from requests that begin and replies that are lost to rule sets that are replaced. At the end
//! of each the units are counted: what the store counts was admitted, or lost with a reply that was lost, and no process holds
//! anything.

mod buckets;
mod end;
mod eventual;
mod reference;
mod run;
mod store;
mod windows;
mod world;
