//! The host and port of a request as the key.

use std::{borrow::Cow, fmt::Debug};

use http::header;
use tollgate_core::PartKind;

use crate::{
    head::Head,
    key::{
        extractor::{Extracted, KeyExtractor, NoKey, extractor},
        value::exactly_one,
    },
};

/// Counts by the host and port that a request is for: those of its URI, or else of its `Host` header. A budget for each
/// virtual host.
///
/// Case, user, password, and the scheme's default port are ignored. More than one `Host` header is [`NoKey::Ambiguous`]. The key has one part of [`PartKind::AUTHORITY`].
///
/// A client may send any host. Reject unknown hosts in front of the limit.
#[must_use]
pub fn authority() -> impl KeyExtractor + Clone + Debug {
    extractor("authority", |head, key| match authority_of(head) {
        Ok(authority) => {
            key.push(PartKind::AUTHORITY, authority.as_bytes());
            Extracted::Key
        }
        Err(why) => Extracted::Nothing(why),
    })
}

/// The host and port of a request, in lower case.
fn authority_of<'h>(head: &Head<'h>) -> Result<Cow<'h, str>, NoKey> {
    let authority = match head.uri.authority() {
        Some(authority) => authority.as_str(),
        None => exactly_one(head.headers.get_all(header::HOST).iter())?
            .to_str()
            .map_err(|_| NoKey::Absent)?
            .trim(),
    };
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let default_port = match head.uri.scheme_str() {
        Some("http") => ":80",
        Some("https") => ":443",
        _ => "",
    };
    let host = host.strip_suffix(default_port).unwrap_or(host);
    if host.is_empty() {
        return Err(NoKey::Absent);
    }
    Ok(if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(uri: &str, hosts: &[&str]) -> Result<String, NoKey> {
        let mut request = Request::get(uri);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let head = request.body(()).unwrap().into_parts().0;
        authority_of(&Head::from(&head)).map(Cow::into_owned)
    }

    #[test]
    fn one_server_is_one_key_however_it_is_written() {
        for (uri, expected) in [
            ("http://API.example:80/", "api.example"),
            ("https://api.example:443/", "api.example"),
            ("https://api.example:80/", "api.example:80"),
            ("https://user:pass@api.example/", "api.example"),
            ("http://[2001:DB8::1]:80/", "[2001:db8::1]"),
            ("http://[2001:db8::80]/", "[2001:db8::80]"),
        ] {
            assert_eq!(of(uri, &[]).as_deref(), Ok(expected), "{uri}");
        }
    }
}
