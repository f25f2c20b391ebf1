//! What all threads would write together, once for each stripe of threads: a request writes no memory that other
//! processors write as well, except the state that it is about.

mod handle;
mod per_stripe;
mod stripe;

pub(crate) use self::{handle::Handle, per_stripe::PerStripe};
