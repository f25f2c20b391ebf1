//! The door for proxies that ask by an HTTP request.

use std::{
    collections::HashMap,
    mem,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, FORWARDED, HOST},
    request::Parts,
};
use hyper::body::Incoming;
use tokio::time::Instant;
use tollgate::{
    RateLimitLayer,
    key::{ClientIp, PeerAddr, client_ip},
    siblings::RequestPart,
};
use tollgate_core::sync::{Mutex, lock};

use crate::{
    listener::Door,
    metrics::{Checks, Code},
    path::normal_path,
    settings::{DoorSettings, Style},
};

/// Where a check is asked for.
const PATH: &str = "/check";
const METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const TARGET: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const CLIENT: HeaderName = HeaderName::from_static("x-forwarded-for");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The body of a denial, for a proxy that drops it.
const PROBLEM: HeaderName = HeaderName::from_static("x-problem");

/// Answers proxies that ask by HTTP.
pub(crate) struct CheckDoor {
    layer: RateLimitLayer,
    style: Style,
    client: ClientIp,
    /// What was answered to requests that nginx may ask about again.
    repeats: Option<Repeats>,
    checks: Checks,
}

impl CheckDoor {
    pub(crate) fn new(layer: RateLimitLayer, settings: &DoorSettings) -> Self {
        // The settings have been looked at.
        let style = settings.style.unwrap_or(Style::Envoy);
        let proxies = ["127.0.0.0/8", "::1/128"]
            .map(str::to_owned)
            .into_iter()
            .chain(settings.allow.iter().map(ToString::to_string));
        Self {
            // To a proxy, the answer for gRPC would be a success.
            layer: layer.protocol(tollgate::rejection::Protocol::Http),
            style,
            client: client_ip().trusted_proxies(proxies).x_forwarded_for(),
            repeats: (style == Style::Nginx).then(Repeats::default),
            checks: Checks::new(<Self as Door>::NAME),
        }
    }

    async fn check(&self, head: Parts) -> (Code, Response<Body>) {
        let id = self
            .repeats
            .as_ref()
            .and_then(|_| head.headers.get(REQUEST_ID).cloned());
        let known = self.repeats.as_ref().zip(id.as_ref());
        if let Some(known) = known.and_then(|(repeats, id)| repeats.find(id.as_bytes())) {
            return (Code::of(known.status().is_success()), known.map(Body::from));
        }
        // Envoy asks with the query of its client.
        let mut query = head.uri.query().unwrap_or_default().split('&');
        let is_403 = self.style != Style::Envoy && query.any(|it| it == "deny=403");
        let part = match self.described(head) {
            Ok(head) => RequestPart {
                head,
                hits: 1,
                is_fragment: false,
            },
            Err(wrong) => return (Code::Invalid, plain(StatusCode::BAD_REQUEST, wrong)),
        };
        let decided = self.layer.decide([part], None).await;
        self.checks.note(decided.decision());
        let is_allowed = decided.decision().is_allowed();
        let mut response = decided.into_response();
        // That of the denial of a HEAD, which has no body.
        response.headers_mut().remove(CONTENT_LENGTH);
        if !is_allowed && is_403 {
            *response.status_mut() = StatusCode::FORBIDDEN;
            if let Ok(problem) = HeaderValue::from_maybe_shared(response.body().clone()) {
                response.headers_mut().insert(PROBLEM, problem);
            }
        }
        if let Some((repeats, id)) = known {
            repeats.keep(id.as_bytes(), &response);
        }
        (Code::of(is_allowed), response.map(Body::from))
    }

    /// The head of the request that the proxy asks about.
    fn described(&self, mut head: Parts) -> Result<Parts, &'static str> {
        let address = match head.headers.contains_key(CLIENT) {
            true => self.client.address(&head).ok(),
            false => None,
        };
        // A rule by `client_ip` takes it from there, and believes no field.
        head.extensions.clear();
        if let Some(address) = address {
            head.extensions
                .insert(PeerAddr(SocketAddr::new(address, 0)));
        }
        let fields = &mut head.headers;
        match self.style {
            Style::Envoy => {
                let whole = head.uri.path_and_query().map_or("", |it| it.as_str());
                let target = whole.strip_prefix(PATH).unwrap_or(whole);
                // Over HTTP/2 it is in the target alone.
                let host = head.uri.authority().map(|it| it.as_str().parse());
                fields.extend(host.and_then(Result::ok).map(|host| (HOST, host)));
                head.uri = normal_path(target.as_bytes()).into();
            }
            Style::Nginx | Style::Forwarded => {
                let field = only(fields, &METHOD)
                    .ok_or("X-Forwarded-Method has to say the client's method, once")?;
                let method = Method::from_bytes(field.as_bytes());
                head.method = method.map_err(|_| "X-Forwarded-Method is no method")?;
                let target = only(fields, &TARGET)
                    .ok_or("X-Forwarded-Uri has to say the client's path, once")?;
                head.uri = normal_path(target.as_bytes()).into();
                if let Some(host) = only(fields, &FORWARDED_HOST) {
                    fields.insert(HOST, host);
                }
            }
        }
        for name in [METHOD, TARGET, FORWARDED_HOST, CLIENT, FORWARDED] {
            fields.remove(name);
        }
        Ok(head)
    }
}

impl Door for CheckDoor {
    const NAME: &'static str = "http";

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let began = Instant::now();
        let (mut head, _) = request.into_parts();
        let path = head.uri.path();
        let is_check = match self.style {
            Style::Envoy => path
                .strip_prefix(PATH)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Style::Nginx | Style::Forwarded => path == PATH,
        };
        if !is_check {
            return plain(StatusCode::NOT_FOUND, "ask at /check");
        }
        // Whoever may ask is a proxy.
        let proxy = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        head.extensions.insert(PeerAddr(proxy));
        let (code, response) = self.check(head).await;
        self.checks.count("", code, began);
        response
    }

    fn refuse(&self) -> Response<Body> {
        plain(
            StatusCode::FORBIDDEN,
            "this peer may not ask; see `allow` and `tls` of tollgate-server",
        )
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

/// The value of a field that is there once.
fn only(fields: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut values = fields.get_all(name).iter();
    values.next().filter(|_| values.next().is_none()).cloned()
}

/// How long an answer is kept, at least and at most twice.
const TERM: Duration = Duration::from_secs(5);
/// How many are kept for a term.
const MOST: usize = 50_000;
/// The longest name that a request has here. nginx makes 32 letters.
const LONGEST: usize = 64;

/// The answers of the last seconds, by the name that the proxy has given a request: nginx asks twice where it redirects by itself.
#[derive(Default)]
struct Repeats(Mutex<Terms>);

#[derive(Default)]
struct Terms {
    current: HashMap<Box<[u8]>, Answer>,
    before: HashMap<Box<[u8]>, Answer>,
    began: Option<Instant>,
}

/// A response, and when it was given: a map may be older than its term, as the next answer replaces it.
type Answer = (Response<Bytes>, Instant);

impl Repeats {
    fn find(&self, name: &[u8]) -> Option<Response<Bytes>> {
        let terms = lock(&self.0);
        let known = terms.current.get(name).or_else(|| terms.before.get(name));
        let (response, at) = known?;
        (at.elapsed() < 2 * TERM).then(|| response.clone())
    }

    fn keep(&self, name: &[u8], response: &Response<Bytes>) {
        if name.is_empty() || name.len() > LONGEST {
            return;
        }
        let at = Instant::now();
        let mut terms = lock(&self.0);
        let is_over = terms.began.is_none_or(|began| at - began >= TERM);
        if is_over || terms.current.len() >= MOST {
            terms.before = mem::take(&mut terms.current);
            terms.began = Some(at);
        }
        terms.current.insert(name.into(), (response.clone(), at));
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_given_again_for_ten_seconds_at_most() {
        let repeats = Repeats::default();
        let mut denial = Response::new(Bytes::from_static(b"no"));
        *denial.status_mut() = StatusCode::FORBIDDEN;
        repeats.keep(b"a", &denial);
        tokio::time::advance(Duration::from_secs(4)).await;
        repeats.keep(&[b'x'; 65], &denial);
        repeats.keep(b"b", &Response::default());
        assert_eq!(
            repeats.find(b"a").map(|it| it.status()),
            Some(StatusCode::FORBIDDEN)
        );
        assert!(repeats.find(&[b'x'; 65]).is_none());
        tokio::time::advance(Duration::from_secs(5)).await;
        repeats.keep(b"c", &Response::default());
        assert!(repeats.find(b"a").is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(repeats.find(b"a").is_none() && repeats.find(b"b").is_some());
        // A flood of names forgets the oldest.
        for name in 0..2 * MOST as u64 {
            repeats.keep(&name.to_be_bytes(), &Response::default());
        }
        let terms = lock(&repeats.0);
        assert!(terms.current.len() + terms.before.len() <= 2 * MOST);
    }
}
