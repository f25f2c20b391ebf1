//! What a process answers alone in front of Redis, beside trypema's hybrid provider.

mod hybrid;
mod load;
mod local;
mod rows;

pub(crate) use self::rows::rows;
