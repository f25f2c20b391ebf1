//! The slots of requests, and the task that reports them to Redis.

mod leased_slots;
mod request_slots;
mod teller;

pub(super) use self::{
    leased_slots::{MessageOutcome, acquire_leased},
    request_slots::{Acquired, RequestSlots},
    teller::{release, return_idle},
};
