//! Messages of Envoy, or of anybody: any bytes are parts of a request or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_server::parts_of_bytes;

fuzz_target!(|bytes: &[u8]| {
    let _ = parts_of_bytes(bytes);
});
