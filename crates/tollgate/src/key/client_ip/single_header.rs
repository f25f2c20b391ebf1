//! A header with one address.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::key::{client_ip::node::address, value::sole};

/// Longer values are no address; they are not searched.
const MAX_BYTES: usize = 128;

/// The address, if the header is there once and has one. A comma never is in an address.
pub(crate) fn read(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let value = sole(headers.get_all(name).iter())
        .map(HeaderValue::as_bytes)
        .ok()?;
    (value.len() <= MAX_BYTES).then(|| address(value)).flatten()
}
