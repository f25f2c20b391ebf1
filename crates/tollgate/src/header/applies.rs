//! Which responses have quota fields.

use http::{HeaderMap, StatusCode, header::CACHE_CONTROL};

/// Whether a response may have quota fields.
///
/// Not a redirect: `r=0` could keep the client from following it. Not a response for shared caches: others would get the
/// client's numbers. A 304 may have them: it updates the numbers of a cached response.
pub(crate) fn applies(status: StatusCode, headers: &HeaderMap) -> bool {
    (!status.is_redirection() || status == StatusCode::NOT_MODIFIED)
        && (!headers.contains_key(CACHE_CONTROL) || !is_shared(headers))
}

/// Whether a shared cache may store the response (RFC 9111 §3): `public`, `s-maxage`, or `max-age` unless it is 0 or the response
/// is `private` or `no-store`.
fn is_shared(headers: &HeaderMap) -> bool {
    let (mut shared, mut fresh, mut private) = (false, false, false);
    let values = headers.get_all(CACHE_CONTROL).iter();
    let lines = values.filter_map(|value| value.to_str().ok());
    for directive in lines.flat_map(|line| line.split(',')) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        let is = |other: &str| name.trim().eq_ignore_ascii_case(other);
        shared |= is("public") || is("s-maxage");
        fresh |= is("max-age") && value.trim().trim_matches('"') != "0";
        // `private="name"` is about that field alone.
        private |= is("no-store") || (is("private") && value.is_empty());
    }
    shared || (fresh && !private)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(status: u16, cache_control: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in cache_control {
            headers.append(CACHE_CONTROL, http::HeaderValue::from_static(value));
        }
        applies(StatusCode::from_u16(status).expect("a status"), &headers)
    }

    #[test]
    fn every_status_but_redirects_has_them() {
        for status in [101, 200, 204, 304, 404, 429, 500, 503] {
            assert!(with(status, &[]), "{status}");
        }
        for status in [300, 301, 302, 303, 307, 308] {
            assert!(!with(status, &[]), "{status}");
        }
    }

    #[test]
    fn a_response_for_shared_caches_has_none() {
        assert!(!with(200, &["public"]));
        assert!(!with(200, &["max-age=60, Public"]));
        assert!(!with(200, &["max-age=60", "S-MaxAge = 60"]));
        assert!(!with(304, &["s-maxage=60"]));
        assert!(!with(200, &["max-age=60"]));
        assert!(!with(200, &["must-revalidate", "Max-Age = \"60\""]));
        assert!(!with(200, &["max-age=60, private=\"set-cookie\""]));
        assert!(with(200, &["private, max-age=60"]));
        assert!(with(200, &["max-age=60", "Private"]));
        assert!(with(200, &["max-age=60, no-store"]));
        assert!(with(200, &["max-age=0, must-revalidate"]));
        assert!(with(200, &["no-cache"]));
        assert!(with(200, &["no-store"]));
        assert!(with(200, &["publicity"]));
    }
}
