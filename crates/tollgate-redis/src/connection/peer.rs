//! Who is at the other end of a connection.

use std::fmt;

use crate::{address::Place, connection::value::Value};

/// A server, as it has introduced itself. What it does not say is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) place: Place,
    /// `redis`, `valkey`, …
    pub(crate) server: String,
    pub(crate) version: String,
    /// `master` or `replica`.
    pub(crate) role: String,
}

impl Peer {
    /// A server that says nothing of itself.
    pub(crate) fn unknown(place: Place) -> Self {
        Self {
            place,
            server: String::new(),
            version: String::new(),
            role: String::new(),
        }
    }

    /// What it has answered to `HELLO 2`: names and values, alternating.
    pub(super) fn of_hello(place: Place, answer: &Value) -> Self {
        let pairs = answer.list().unwrap_or_default().chunks_exact(2);
        let text = |name: &str| {
            let mut pairs = pairs.clone();
            let pair = pairs.find(|pair| pair[0].text() == Some(name));
            let text = pair.and_then(|pair| pair[1].text()).unwrap_or_default();
            text.to_owned()
        };
        Self {
            server: text("server"),
            version: text("version"),
            role: text("role"),
            place,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        for word in [&self.server, &self.version, &self.role] {
            if !word.is_empty() {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}
