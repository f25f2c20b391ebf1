//! `tollgate size`: how much memory rules need, and how many calls to Redis they make.

mod memory_size;
mod redis_size;
mod size_command;

pub(crate) use self::size_command::{SizeArgs, run};
