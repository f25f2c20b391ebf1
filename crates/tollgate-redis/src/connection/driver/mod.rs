//! One connection while it lasts: writes what waits, reads what is answered, and keeps the deadlines.

mod backlog;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod driver;

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;

pub(super) use self::{
    backlog::{Lost, LostKind},
    driver::Driver,
};
