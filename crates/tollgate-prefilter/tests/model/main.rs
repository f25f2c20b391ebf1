//! The lease protocol on small bounds, explored to the last state: processes that crash and fall silent, a network that
//! delays, reorders and loses, a store whose clock goes back.

mod alive;
mod bucket;
mod buckets;
mod explore;
mod fault;
mod model_store;
mod scheduled;
mod slots;
mod step;
mod system;
mod window;
mod windows;
mod world;
