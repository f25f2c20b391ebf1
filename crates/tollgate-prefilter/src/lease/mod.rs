//! Units in advance: a process asks for as many as it expects to need, and the store decides how many it gets (`terms.rs`).

pub(crate) mod bucket_grantor;
pub(crate) mod demand;
pub(crate) mod grant;
mod held_lease;
pub(crate) mod lease_holder;
mod overdraft;
pub(crate) mod schedule_terms;
mod scheduled_lease_sizer;
pub(crate) mod terms;
pub(crate) mod window_grantor;
