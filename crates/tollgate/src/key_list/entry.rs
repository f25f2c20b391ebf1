//! An entry of a list as text.

use std::{net::IpAddr, time::UNIX_EPOCH};

use ipnet::IpNet;
use tollgate_core::{Clock, Quota, Tick};

use crate::key::network;

/// What a line says.
pub(super) enum Entry<'a> {
    Key(&'a str),
    Network(IpNet),
}

/// Reads a line. `None`: it says nothing.
pub(super) fn read(line: &str) -> Result<Option<(Entry<'_>, Tick)>, String> {
    let line = match line.find(" #").or_else(|| line.find("\t#")) {
        Some(comment) => &line[..comment],
        None => line,
    };
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (text, until) = match line.rsplit_once(" until ") {
        None => (line, Tick::MAX),
        Some((text, until)) => (text.trim_end(), end(until.trim_start())?),
    };
    let address = text.split_once('/').map_or(text, |(address, _)| address);
    if address.parse::<IpAddr>().is_err() {
        return Ok(Some((Entry::Key(text), until)));
    }
    let network = network(text)?;
    if network.prefix_len() == 0 {
        return Err(format!(
            "{text:?} names all addresses; leave the list away, or name networks"
        ));
    }
    Ok(Some((Entry::Network(network), until)))
}

/// The end of an entry, which is read as that of a quota is.
fn end(text: &str) -> Result<Tick, String> {
    let quota: Quota = format!("none until {text}")
        .parse()
        .map_err(|wrong: tollgate_core::types::ParseQuotaError| wrong.message().to_owned())?;
    let end = quota
        .ends_at()
        .and_then(|end| end.duration_since(UNIX_EPOCH).ok());
    let end = end.unwrap_or_default().as_micros();
    Ok(Tick::try_from(end).unwrap_or(Tick::MAX))
}

/// Whether it is before the end of an entry.
pub(super) fn is_before(end: Tick) -> bool {
    end == Tick::MAX || Clock::system().now() < end
}
