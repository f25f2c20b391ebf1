//! What a server says of its limits: pure functions of a response's head and the time.

mod grpc;
mod moment;
mod ratelimit_dictionary;
mod ratelimit_list;
mod retry_after;
mod said;
mod structured;
mod told;
mod triple;

pub(super) use self::{said::Said, told::Told};
