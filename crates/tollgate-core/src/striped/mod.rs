//! What all threads would write together, once for each stripe of threads: a request writes no memory that other
//! processors write as well, except the state that it is about.
//!
//! For the crates of tollgate: not a part of the public interface.

mod handle;
mod per_stripe;
mod stripe;

pub use self::{
    handle::Handle,
    per_stripe::PerStripe,
    stripe::{current as current_stripe, on_each as on_each_stripe},
};
