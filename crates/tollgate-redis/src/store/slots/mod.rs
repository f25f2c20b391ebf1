//! The slots of requests, and how Redis is told of them.

mod leased_slots;
mod request_slots;
mod teller;

pub(super) use self::{
    leased_slots::{Told, acquire_leased},
    request_slots::{Acquired, RequestSlots},
    teller::{release, return_idle},
};
