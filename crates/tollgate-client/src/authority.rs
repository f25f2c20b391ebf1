//! The host and port that a request is for.

use std::borrow::Cow;

use http::{header, request::Parts};

/// The host and port of the URI, or else of the `Host` header, in lower case, without the scheme's default port. Empty if
/// there is neither.
pub(crate) fn authority_of(head: &Parts) -> Cow<'_, str> {
    let host_header = || head.headers.get(header::HOST)?.to_str().ok();
    let authority = match head.uri.authority() {
        Some(authority) => authority.as_str(),
        None => host_header().unwrap_or_default().trim(),
    };
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let default_port = match head.uri.scheme_str() {
        Some("http") => ":80",
        Some("https") => ":443",
        _ => "",
    };
    let host = host.strip_suffix(default_port).unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(uri: &str, host: Option<&str>) -> String {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let head = request.body(()).expect("a request").into_parts().0;
        authority_of(&head).into_owned()
    }

    #[test]
    fn case_user_and_default_port_are_ignored() {
        for uri in [
            "http://api.example/",
            "http://API.example:80/",
            "https://me:secret@api.example:443/x",
        ] {
            assert_eq!(of(uri, None), "api.example");
        }
        assert_eq!(of("http://api.example:8080/", None), "api.example:8080");
    }

    #[test]
    fn a_relative_uri_falls_back_to_the_host_header() {
        assert_eq!(of("/x", Some(" Api.Example:80 ")), "api.example:80");
        assert_eq!(of("/x", None), "");
    }
}
