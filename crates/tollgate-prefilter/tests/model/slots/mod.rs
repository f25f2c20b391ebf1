//! Slots on small bounds, explored: requests that start and end, replies that are lost or late, processes that
//! pause, crash and start again, a store that forgets, and clocks that run apart.

mod alive;
mod due;
mod exact;
mod fault;
mod step;
mod system;
mod world;
