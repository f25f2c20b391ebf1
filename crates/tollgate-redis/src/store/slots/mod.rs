//! The slots of requests, and what Redis is told of them.

mod request_slots;
mod slot_reporter;
#[cfg(test)]
mod tests;

pub(super) use self::{
    request_slots::{Acquired, RequestSlots},
    slot_reporter::{release, send_due_slots},
};
