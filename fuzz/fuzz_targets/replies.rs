//! Replies of any server, as this crate and redis-rs read them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::compare_reply;

fuzz_target!(|bytes: &[u8]| compare_reply(bytes));
