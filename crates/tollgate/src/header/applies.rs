//! Which responses carry the fields.

use http::{HeaderMap, StatusCode, header::CACHE_CONTROL};

/// Whether a response may carry the quota of its client.
///
/// Not a redirect: `r=0` could keep the client from following it. Not one that a shared cache may keep: it would tell one
/// client's numbers to others. A 304 is neither; it replaces the numbers of a cached response with current ones.
pub(crate) fn applies(status: StatusCode, headers: &HeaderMap) -> bool {
    (!status.is_redirection() || status == StatusCode::NOT_MODIFIED)
        && !headers
            .get_all(CACHE_CONTROL)
            .iter()
            .any(|value| value.to_str().is_ok_and(is_shared))
}

fn is_shared(cache_control: &str) -> bool {
    cache_control.split(',').any(|directive| {
        let name = directive.split('=').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("public") || name.eq_ignore_ascii_case("s-maxage")
    })
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
    fn every_status_but_a_redirect_carries_them() {
        for status in [101, 200, 204, 304, 404, 429, 500, 503] {
            assert!(with(status, &[]), "{status}");
        }
        for status in [300, 301, 302, 303, 307, 308] {
            assert!(!with(status, &[]), "{status}");
        }
    }

    #[test]
    fn a_response_for_shared_caches_does_not() {
        assert!(!with(200, &["public"]));
        assert!(!with(200, &["max-age=60, Public"]));
        assert!(!with(200, &["max-age=60", "S-MaxAge = 60"]));
        assert!(!with(304, &["s-maxage=60"]));
        assert!(with(200, &["private, max-age=60"]));
        assert!(with(200, &["no-store"]));
        assert!(with(200, &["publicity"]));
    }
}
