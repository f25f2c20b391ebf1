//! Limits on messages: over the wire, and with bodies by hand.

mod bodies;
mod by_hand;
mod connection;
mod contract;
mod counting;
mod served;
mod waiting;
mod web;
mod wire;
