//! The slots of requests, and the task that reports them to Redis.

mod request_slots;
mod slot_reporter;
#[cfg(test)]
mod tests;

pub(super) use self::{
    request_slots::{Acquired, RequestSlots},
    slot_reporter::release,
};
