//! Conditions on a request's head, for [`RequestRule::when`] and [`RequestRule::exempt`].
//!
//! Any closure over the head is a [`Condition`]; these are the common ones.
//!
//! ```
//! use http::Method;
//! use tollgate::{MINUTE, Quota, Rule, condition::{any_of, method_in, path_under}, key::header};
//!
//! let writes = Rule::new("writes-per-key", Quota::gcra(60, MINUTE))
//!     .by(header("x-api-key"))
//!     .when(method_in([Method::POST, Method::PUT, Method::DELETE]))
//!     .exempt(any_of(path_under("/internal"), |head| head.headers.contains_key("x-probe")));
//! # let _ = writes;
//! ```
//!
//! [`RequestRule::when`] recognises conditions on paths, unlike closures: in a layer of many rules, an index over paths finds those of
//! a request. So a rule for each of a thousand routes costs a request little more than one rule does. [`any_of`] keeps that; [`not`],
//! [`method_in`] alone and closures may be `true` anywhere, and are called for each request.
//!
//! A pattern holds for all paths that it matches: `path("/items/{id}")` for `/items/new`, too, which may be a route of its own. A route
//! of axum is `|head| head.extensions.get::<MatchedPath>().is_some_and(|it| it.as_str() == "/items/{id}")`, in a layer inside of the
//! router (`Router::route_layer`).
//!
//! A condition that can never hold, such as `method_in([])` or `path_under("/users/{id}")`, is an error of the layer that has it.
//!
//! A header that exempts must be one that clients cannot send, because a proxy removes it.
//!
//! [`RequestRule::when`]: crate::RequestRule::when
//! [`RequestRule::exempt`]: crate::RequestRule::exempt

use http::Method;
use tollgate_core::RuleError;

pub use crate::known_condition::Condition;
use crate::{
    head::Head,
    key::{KeyExtractor, client_ip},
    key_list::KeyList,
    known_condition::{KnownCondition, STANDARD_METHODS, path_matches},
    path_pattern::{PathPattern, prefix_mistake},
    routes::{PathShape, Routes, ShapeOf, whole_path},
};

/// The request has one of these methods. GET includes HEAD, which has the same handler and does the same work (RFC 9110 §9.3.2).
///
/// `method_in([Method::HEAD])` is HEAD alone. For GET alone write a closure, `|head| head.method == Method::GET`.
pub fn method_in(methods: impl IntoIterator<Item = Method>) -> impl Condition + Clone {
    let mut methods: Vec<_> = methods.into_iter().collect();
    let mistake = method_mistake(&methods);
    if methods.contains(&Method::GET) {
        methods.push(Method::HEAD);
    }
    let holds = move |head: &Head<'_>| methods.contains(head.method);
    KnownCondition::new(Routes::default(), mistake, holds).into_fn()
}

/// Why no request has one of these methods.
fn method_mistake(methods: &[Method]) -> Option<String> {
    if methods.is_empty() {
        return Some("method_in of no method never holds; name one, or leave it out".to_owned());
    }
    let mistake = methods.iter().find(|method| {
        let upper = method.as_str().to_ascii_uppercase();
        ["*", "ANY", "ALL"].contains(&&*upper)
            || STANDARD_METHODS.contains(&&*upper) && upper != method.as_str()
    })?;
    Some(format!(
        "{mistake:?} is not a method: write one in upper case, as GET, and for all methods leave method_in out"
    ))
}

/// The path is this one or below it: `/internal` matches `/internal` and `/internal/jobs`, not `/internals`.
///
/// A call of gRPC is to a service or to one of its methods where its path is under `/weather.v1.Weather`, or is
/// `/weather.v1.Weather/Current`.
///
/// The path is the one that [`path()`] sees, with the prefixes of nested routers. A text that no path begins with is an error of the
/// layer: a pattern such as `/users/{id}`, a query, characters that clients send escaped.
pub fn path_under(prefix: impl Into<String>) -> impl Condition + Clone {
    let mut prefix = prefix.into();
    let mistake = prefix_mistake(&prefix);
    while prefix.ends_with('/') {
        prefix.pop();
    }
    // All paths are below the empty one, and none below one that does not begin with a slash.
    let routes = match prefix.strip_prefix('/') {
        Some(path) => Routes::of_path(PathShape {
            of: ShapeOf::Path,
            segments: path.split('/').map(|it| Some(it.into())).collect(),
            is_open: true,
        }),
        None => Routes::default(),
    };
    let holds = move |head: &Head<'_>| {
        let path = whole_path(head);
        let rest = path.strip_prefix(&*prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    KnownCondition::new(routes, mistake, holds).into_fn()
}

/// The path matches this pattern, as axum's router matches it: `/users/{id}`, `/files/{*rest}`.
///
/// A parameter stands for one segment, or for its end, as in `/v{version}`. A catch-all stands for the rest of the path. At the end of a
/// path both need at least one character. Before a slash a parameter may be empty: `/users//posts` matches `/users/{id}/posts`. To match
/// a brace, double it.
///
/// The path is the whole one that the client has sent, undecoded. In a layer on the router that axum's `nest("/api", ..)` takes, write
/// `path("/api/login")`, although `head.uri` is `/login` there. That needs the feature `axum`: without it the prefix is lost.
///
/// The rule has to be inside of a layer that rewrites paths, such as tower-http's `NormalizePathLayer`: it cannot see what a path
/// becomes behind it, and `/login/` would pass by a rule on `/login`.
///
/// ```
/// use tollgate::{MINUTE, Quota, Rule, condition::path, key::client_ip};
///
/// let downloads = Rule::new("downloads-per-ip", Quota::gcra(60, MINUTE))
///     .by(client_ip())
///     .when(path("/files/{*rest}")?);
/// # let _ = downloads;
/// assert!(path("files/{*rest}").is_err());
/// # Ok::<(), tollgate::RuleError>(())
/// ```
///
/// # Errors
///
/// A text that is not a pattern. The error says what would be right.
pub fn path(pattern: &str) -> Result<impl Condition + Clone, RuleError> {
    Ok(path_matches(PathPattern::new(pattern)?))
}

/// The client's address is in one of these networks: CIDRs or single addresses, as text, [`IpNet`](ipnet::IpNet) or
/// [`IpAddr`](std::net::IpAddr).
///
/// The address is that of [`client_ip()`](crate::key::client_ip()) without settings: the socket's peer. Behind proxies use
/// [`ClientIp::is_in`](crate::key::ClientIp::is_in), with the same settings as the rules. Without a peer address the condition is
/// `false`.
///
/// ```
/// use tollgate::{MINUTE, Quota, Rule, condition::client_in, key::client_ip};
///
/// let rule = Rule::new("per-ip", Quota::gcra(60, MINUTE))
///     .by(client_ip())
///     .exempt(client_in(["10.0.0.0/8", "2001:db8:7::/48", "192.0.2.7"])?);
/// # let _ = rule;
/// # Ok::<(), tollgate::RuleError>(())
/// ```
///
/// # Errors
///
/// A text that is not a network, or no network at all.
pub fn client_in<N: ToString>(
    networks: impl IntoIterator<Item = N>,
) -> Result<impl Condition + Clone, RuleError> {
    client_ip().is_in(networks)
}

/// The key that `by` finds is in this [list](crate::key_list), or the client's whole address where `by` is
/// [`client_ip`]: for [`RequestRule::exempt`](crate::RequestRule::exempt), and for lists of other keys than the rule's own, which
/// [`when_listed`](crate::RequestRule::when_listed) asks for.
///
/// It is `false` for a request without this key, for one that sends it more than once, and for one whose key is looked up. So take
/// `when_listed` for keys that are to be denied.
pub fn in_list(by: impl KeyExtractor, list: &KeyList) -> impl Condition + Clone {
    let (mistake, list) = (by.validate().err(), list.clone());
    let holds = move |head: &Head<'_>| list.has(&by, head) == Some(true);
    KnownCondition::new(Routes::default(), mistake, holds).into_fn()
}

/// Either condition is `true`.
pub fn any_of(one: impl Condition, other: impl Condition) -> impl Condition + Clone {
    let (one, other) = (KnownCondition::of(one), KnownCondition::of(other));
    let routes = one.routes.or(&other.routes);
    let mistake = one.mistake.or(other.mistake);
    let (one, other) = (one.holds, other.holds);
    KnownCondition::new(routes, mistake, move |head| one(head) || other(head)).into_fn()
}

/// The condition is `false`.
pub fn not(condition: impl Condition) -> impl Condition + Clone {
    let KnownCondition { holds, mistake, .. } = KnownCondition::of(condition);
    // Without its routes: it is true outside of them.
    KnownCondition::new(Routes::default(), mistake, move |head| !holds(head)).into_fn()
}

#[cfg(test)]
mod tests {
    use http::request::Parts;

    use super::*;

    fn head(method: Method, path: &str) -> Parts {
        let request = http::Request::builder().method(method).uri(path);
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn path_under_compares_whole_segments() {
        for prefix in ["/internal", "/internal/"] {
            let under = path_under(prefix);
            for (path, holds) in [
                ("/internal", true),
                ("/internal/", true),
                ("/internal/jobs?x=1", true),
                ("/internals", false),
                ("/", false),
                ("/v1/internal", false),
            ] {
                assert_eq!(
                    under(&Head::from(&head(Method::GET, path))),
                    holds,
                    "{path}"
                );
            }
        }
        assert!(path_under("/")(&Head::from(&head(Method::GET, "/any"))));
    }

    #[test]
    fn a_condition_that_a_user_has_boxed_is_not_taken_for_the_one_that_it_calls() {
        let internal = path("/internal/{*rest}").expect("a pattern");
        let outside: Box<dyn Condition> = Box::new(move |head: &Head<'_>| !internal(head));
        let known = KnownCondition::of(outside);
        for (path, holds) in [("/internal/jobs", false), ("/other", true)] {
            assert_eq!(known.holds(&Head::from(&head(Method::GET, path))), holds);
        }
    }

    fn from(peer: &str) -> Parts {
        let mut head = head(Method::GET, "/");
        let peer = (
            peer.parse::<std::net::IpAddr>().expect("an address"),
            40_000,
        );
        head.extensions.insert(crate::key::PeerAddr(peer.into()));
        head
    }

    #[test]
    fn client_in_matches_the_peer_address() {
        let condition =
            client_in(["10.0.0.0/8", "2001:db8:7::/48", "192.0.2.7"]).expect("networks");
        for (peer, holds) in [
            ("10.255.255.255", true),
            ("::ffff:10.0.0.1", true),
            ("11.0.0.0", false),
            ("2001:db8:7:ffff::1", true),
            ("2001:db8:8::", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
        ] {
            assert_eq!(condition(&Head::from(&from(peer))), holds, "{peer}");
        }
        let all = client_in(["0.0.0.0/0", "::/0"]).expect("networks");
        assert!(all(&Head::from(&from("192.0.2.7"))));
        // No peer address.
        assert!(!all(&Head::from(&head(Method::GET, "/"))));
    }

    #[test]
    fn an_invalid_network_is_an_error() {
        let error = |networks: &[&str]| match client_in(networks) {
            Ok(_) => panic!("{networks:?} is accepted"),
            Err(error) => error.to_string(),
        };
        assert!(error(&["10.0.0.0/8", "10.0.0/8"]).contains("\"10.0.0/8\" is not a network"));
        assert!(error(&[]).contains("name at least one"));
        let untrusted = client_ip().x_forwarded_for().is_in(["10.0.0.0/8"]);
        assert!(
            untrusted
                .err()
                .expect("a mistake")
                .to_string()
                .contains("trusted_proxies")
        );
    }

    #[test]
    fn get_includes_head_and_head_is_itself_alone() {
        for (methods, get, head_too) in [
            (vec![Method::GET], true, true),
            (vec![Method::HEAD], false, true),
            (vec![Method::POST], false, false),
        ] {
            let holds = method_in(methods.clone());
            assert_eq!(
                holds(&Head::from(&head(Method::GET, "/"))),
                get,
                "{methods:?}"
            );
            assert_eq!(
                holds(&Head::from(&head(Method::HEAD, "/"))),
                head_too,
                "{methods:?}"
            );
        }
    }

    #[test]
    fn a_condition_that_never_holds_is_an_error_of_its_layer() {
        use tollgate_core::{MINUTE, MemoryStore, Quota};

        use crate::{RateLimitLayer, Rule, key::constant};

        let method = |text: &str| Method::from_bytes(text.as_bytes()).expect("a token");
        let rule = || Rule::new("r", Quota::gcra(1, MINUTE)).by(constant("all"));
        let internal = path_under("internal");
        for (rule, words) in [
            (rule().when(method_in([])), "no method"),
            (rule().when(method_in([method("*")])), "leave method_in out"),
            (rule().when(method_in([method("get")])), "in upper case"),
            (rule().when(internal.clone()), "begins with a slash"),
            (rule().when(path_under("/users/{id}")), "this is no pattern"),
            (rule().when(path_under("/users/:id")), "this is no pattern"),
            (rule().when(path_under("/search*")), "this is no pattern"),
            (rule().when(path_under("/a?b=c")), "before the query"),
            (rule().when(path_under("/café/")), "write \"caf%C3%A9\""),
            (
                rule().exempt(any_of(|_| false, not(method_in([])))),
                "no method",
            ),
            (rule().exact_when(internal), "begins with a slash"),
            (
                rule().on_store_error_when(method_in([]), tollgate_core::OnStoreError::Deny),
                "no method",
            ),
        ] {
            let error = RateLimitLayer::new(MemoryStore::new(), [rule])
                .expect_err(words)
                .to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
        let right = rule().when(path_under("/")).exempt(path_under(""));
        assert!(RateLimitLayer::new(MemoryStore::new(), [right]).is_ok());
    }
}
