//! Which responses have quota fields.

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, DATE, EXPIRES, LAST_MODIFIED},
};
use tollgate_core::wall_clock;

use crate::header::times::http_date;

/// Whether a response may have quota fields.
///
/// Not a redirect: `r=0` could keep the client from following it. Not a response for shared caches: others would get the
/// client's numbers. A 304 may have them: it updates the numbers of a cached response.
#[inline]
pub(crate) fn applies(status: StatusCode, headers: &HeaderMap) -> bool {
    (!status.is_redirection() || status == StatusCode::NOT_MODIFIED)
        && (headers.is_empty() || !is_shared(status, headers))
}

fn is_about_caches(name: &HeaderName) -> bool {
    *name == EXPIRES
        || *name == LAST_MODIFIED
        || *name == CACHE_CONTROL
        || is_targeted(name)
        || name == "x-accel-expires"
}

/// Whether a field is for some shared caches alone: RFC 9213, which has `CDN-Cache-Control` and leaves others to vendors, and its
/// forerunner `Surrogate-Control`.
fn is_targeted(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.ends_with("-cache-control") || name == "surrogate-control" || name == "edge-control"
}

/// Whether nginx stores the response, whatever its other fields say: a time in seconds, or `@` with a moment.
fn is_stored_by_nginx(headers: &HeaderMap) -> bool {
    let values = headers.get_all("x-accel-expires").iter();
    let mut texts = values.filter_map(|value| value.to_str().ok());
    texts.any(|text| !matches!(text.trim(), "" | "0" | "off"))
}

/// Whether a shared cache may store the response and serve it to others (RFC 9111 §3 and §4.2).
fn is_shared(status: StatusCode, headers: &HeaderMap) -> bool {
    if !headers.keys().any(is_about_caches) {
        return false;
    }
    let heuristic = headers.contains_key(LAST_MODIFIED) && is_heuristically_cacheable(status);
    let expires = headers
        .get(EXPIRES)
        .map(|expires| is_later(expires, headers.get(DATE)));
    // In place of the other fields (RFC 9213 §2.1). A cache that does not know them goes by those.
    let mut targeted = headers.keys().filter(|name| is_targeted(name));
    is_stored_by_nginx(headers)
        || Directives::of(headers, &CACHE_CONTROL).share(expires.unwrap_or(heuristic), heuristic)
        || targeted.any(|name| Directives::of(headers, name).share(heuristic, heuristic))
}

/// What `Cache-Control`, or a field like it, says.
#[derive(Default)]
struct Directives {
    shared: bool,
    /// Whether it may be served to others once it is stale (RFC 5861).
    stale: bool,
    /// Whether `max-age` is above 0.
    fresh: Option<bool>,
    private: bool,
    revalidated: bool,
}

impl Directives {
    fn of(headers: &HeaderMap, field: &HeaderName) -> Self {
        let mut directives = Self::default();
        let values = headers.get_all(field).iter();
        let lines = values.filter_map(|value| value.to_str().ok());
        for directive in lines.flat_map(|line| line.split(',')) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            // A parameter, as in `max-age=60;abc`.
            let value = value.split(';').next().unwrap_or_default().trim();
            let is = |other: &str| name.trim().eq_ignore_ascii_case(other);
            directives.shared |= is("public") || is("s-maxage");
            directives.stale |= is("stale-while-revalidate") || is("stale-if-error");
            if is("max-age") {
                directives.fresh =
                    Some(!value.trim_matches('"').trim_start_matches('0').is_empty());
            }
            // `private="name"` is about that field alone.
            directives.private |= is("no-store") || (is("private") && value.is_empty());
            directives.revalidated |= is("no-cache") && value.is_empty();
        }
        directives
    }

    /// Whether they let a shared cache serve the response to others. `unless_said`: whether the response is fresh where they do not
    /// say how long; `heuristic`: whether a cache may guess it.
    fn share(&self, unless_said: bool, heuristic: bool) -> bool {
        let guessed = unless_said && heuristic && self.revalidated;
        !self.private
            && (self.shared || self.stale || self.fresh.unwrap_or(unless_said && !guessed))
    }
}

/// Whether a cache may guess how long a response is fresh (RFC 9110 §15.1).
fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Whether a time lies in the future of a response, whose `Date` the server may add later. What is no date has passed (RFC 9111 §5.3).
fn is_later(expires: &HeaderValue, date: Option<&HeaderValue>) -> bool {
    http_date(expires).is_some_and(|it| it > date.and_then(http_date).unwrap_or_else(wall_clock))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_fields(status: u16, fields: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        applies(StatusCode::from_u16(status).expect("a status"), &headers)
    }

    fn with(status: u16, cache_control: &[&'static str]) -> bool {
        let lines = cache_control.iter().map(|line| ("cache-control", *line));
        has_fields(status, &lines.collect::<Vec<_>>())
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
        assert!(!with(200, &["max-age=60", "S-MaxAge = 60"]));
        assert!(!with(200, &["max-age=60"]));
        assert!(!with(200, &["must-revalidate", "Max-Age = \"60\""]));
        assert!(!with(200, &["max-age=60, private=\"set-cookie\""]));
        assert!(with(200, &["private, max-age=60"]));
        assert!(with(200, &["max-age=60", "Private"]));
        assert!(with(200, &["max-age=0, must-revalidate"]));
        assert!(with(200, &["no-store"]));
        assert!(with(200, &["publicity"]));
        // Who forbids it wins.
        assert!(with(200, &["s-maxage=5, no-store"]));
        assert!(with(200, &["public", "private"]));
    }

    #[test]
    fn it_has_none_whichever_field_lets_a_cache_store_it() {
        const LATER: (&str, &str) = ("expires", "Fri, 01 Jan 2100 00:00:00 GMT");
        const EARLIER: (&str, &str) = ("expires", "Thu, 01 Jan 1970 00:00:00 GMT");
        const MODIFIED: (&str, &str) = ("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT");
        const PRIVATE: (&str, &str) = ("cache-control", "private");
        const NO_STORE: (&str, &str) = ("cache-control", "no-store");
        for (status, fields, has) in [
            (200, &[LATER][..], false),
            (
                200,
                &[
                    ("expires", "Friday, 01-Jan-99 00:00:00 GMT"),
                    ("date", "Thu, 31 Dec 1998 23:59:59 GMT"),
                ],
                false,
            ),
            (
                200,
                &[LATER, ("date", "Fri, 01 Jan 2100 00:00:00 GMT")],
                true,
            ),
            (200, &[EARLIER], true),
            (200, &[("expires", "0")], true),
            // The age is in place of the date.
            (200, &[LATER, ("cache-control", "max-age=0")], true),
            (200, &[EARLIER, ("cache-control", "max-age=60")], false),
            (200, &[LATER, PRIVATE], true),
            (200, &[LATER, NO_STORE], true),
            // Caches guess.
            (200, &[MODIFIED], false),
            (403, &[MODIFIED], true),
            (200, &[MODIFIED, ("cache-control", "no-cache")], true),
            // Fields for a CDN.
            (200, &[("cdn-cache-control", "max-age=60")], false),
            (
                200,
                &[
                    ("surrogate-control", "max-age=60, content=\"ESI/1.0\""),
                    NO_STORE,
                ],
                false,
            ),
            (
                200,
                &[("cdn-cache-control", "must-revalidate"), PRIVATE, MODIFIED],
                false,
            ),
            (
                200,
                &[
                    ("cdn-cache-control", "no-store"),
                    ("cache-control", "max-age=60"),
                ],
                false,
            ),
            (200, &[("cdn-cache-control", "no-store"), PRIVATE], true),
            (200, &[("surrogate-control", "content=\"ESI/1.0\"")], true),
        ] {
            assert_eq!(has_fields(status, fields), has, "{status} {fields:?}");
        }
    }
}
