//! The slots of requests, and the task that reports them to Redis.

mod leased_slots;
mod request_slots;
mod slot_reporter;
#[cfg(test)]
mod tests;

pub(super) use self::{
    leased_slots::acquire_leased,
    request_slots::{Acquired, RequestSlots},
    slot_reporter::{release, return_idle},
};
