//! Messages of Envoy, or of anybody: to any bytes there is an answer or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::answer_envoy;

fuzz_target!(|bytes: &[u8]| answer_envoy(bytes));
