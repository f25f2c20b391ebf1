//! Units in advance.

pub(crate) mod bucket_lender;
mod debt;
pub(crate) mod demand;
mod held;
pub(crate) mod holder;
pub(crate) mod lot;
mod reset;
mod retry;
pub(crate) mod segments;
pub(crate) mod terms;
mod thirst;
pub(crate) mod window_lender;
