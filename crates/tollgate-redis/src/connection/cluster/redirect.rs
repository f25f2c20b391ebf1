//! `MOVED` and `ASK`: the server did not run a call and says who would.

use crate::{
    address::Place,
    connection::{error::CallError, options::NodeOptions},
};

/// Where a call should go instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot belongs to this server; `None` if the server that said so does not know its name.
    Moved(Option<Place>),
    /// The slot is on its way to this server, and what this call is about has arrived already or is new.
    Ask(Option<Place>),
}

impl Redirect {
    /// Reads `MOVED 3999 127.0.0.1:6381`, which the server `from` answered.
    pub(super) fn of(error: &CallError, from: &Place, options: &NodeOptions) -> Option<Self> {
        let mut words = error.line().split(' ');
        let of = match words.next()? {
            "MOVED" => Self::Moved,
            "ASK" => Self::Ask,
            _ => return None,
        };
        words.next()?.parse::<u16>().ok()?;
        Some(of(place(words.next()?, from, options)))
    }
}

/// The last colon ends the host, also that of an IPv6 address. No host is the host of `from`.
fn place(text: &str, from: &Place, options: &NodeOptions) -> Option<Place> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    named(host, from).map(|host| options.mapped(host, port))
}

/// What a server of a cluster means by a host: nothing is the one that it was asked at, `?` that it does not know.
pub(super) fn named(host: &str, from: &Place) -> Option<String> {
    match (host, from) {
        ("", Place::Tcp(asked, _)) => Some(asked.clone()),
        ("" | "?", _) => None,
        (host, _) => Some(host.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Redirect> {
        let from = Place::Tcp("asked".into(), 7000);
        Redirect::of(&CallError::of_server(line), &from, &NodeOptions::default())
    }

    fn tcp(host: &str, port: u16) -> Option<Place> {
        Some(Place::Tcp(host.into(), port))
    }

    #[test]
    fn the_place_is_read_in_all_its_forms() {
        let moved = |place| Some(Redirect::Moved(place));
        assert_eq!(
            read("MOVED 3999 127.0.0.1:6381"),
            moved(tcp("127.0.0.1", 6381))
        );
        assert_eq!(read("MOVED 1 ::1:6381"), moved(tcp("::1", 6381)));
        assert_eq!(read("MOVED 1 [::1]:6381"), moved(tcp("::1", 6381)));
        assert_eq!(read("MOVED 1 a.example:1"), moved(tcp("a.example", 1)));
        assert_eq!(read("MOVED 1 :6381"), moved(tcp("asked", 6381)));
        assert_eq!(
            read("ASK 16383 127.0.0.1:6381"),
            Some(Redirect::Ask(tcp("127.0.0.1", 6381)))
        );
    }
}
