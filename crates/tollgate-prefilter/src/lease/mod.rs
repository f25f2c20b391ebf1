//! Units in advance.

pub(crate) mod bucket_lender;
pub(crate) mod demand;
pub(crate) mod holder;
pub(crate) mod lot;
mod reset;
mod retry;
pub(crate) mod terms;
pub(crate) mod window_lender;
