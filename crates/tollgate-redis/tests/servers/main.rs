//! The store on servers of all kinds: alone, with log-ins, behind Sentinel, in a cluster, and with a clock that is moved.

mod clock;
mod cluster;
mod credentials;
mod refused;
mod sentinel;
