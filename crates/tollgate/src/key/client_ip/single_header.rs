//! A header with one address.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::key::{client_ip::node::address, value::exactly_one};

/// Longer values are not addresses.
const MAX_BYTES: usize = 128;

/// The address, if the header occurs once and is an address.
pub(crate) fn read(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let value = exactly_one(headers.get_all(name).iter())
        .map(HeaderValue::as_bytes)
        .ok()?;
    (value.len() <= MAX_BYTES).then(|| address(value)).flatten()
}
