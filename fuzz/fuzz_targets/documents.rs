//! Documents of rules, in each syntax: any text is a document or an error with a place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::read_document;

fuzz_target!(|bytes: &[u8]| read_document(&String::from_utf8_lossy(bytes)));
