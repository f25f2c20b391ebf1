//! What the guide says about running it, held to a server.

mod access;
mod by_hand;
