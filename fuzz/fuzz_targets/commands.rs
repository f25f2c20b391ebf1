//! Commands, as this crate and redis-rs write them. The bytes between two zeros are an argument.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::compare_command;

fuzz_target!(|bytes: &[u8]| {
    let parts: Vec<_> = bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    compare_command(&parts);
});
