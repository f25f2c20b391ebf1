//! The slots of requests, and how Redis is told of them.

mod request_slots;
mod teller;

pub(super) use self::{
    request_slots::{Acquired, RequestSlots},
    teller::release,
};
