//! Who may see the console, and from where a request may come.

use std::{fmt, net::SocketAddr};

use axum::extract::ConnectInfo;
use http::{HeaderMap, Method, header, request::Parts};
use tollgate::{Key, Limiter, MINUTE, MemoryStore, Quota, siblings::host_of};
use tollgate_core::Rule;

/// Who may see a console and act on it. There is no default: a console without a decision about it does not exist.
///
/// ```
/// use tollgate_console::Access;
///
/// let access = Access::token("b83f0c1e97d24a6f8f5e2b7a9c3d1e60")?;
/// let error = Access::token("secret").unwrap_err();
/// assert_eq!(error.to_string(), "a token of 6 characters can be guessed; take at least 24, as `openssl rand -hex 32` prints them");
/// # Ok::<(), tollgate_console::AccessError>(())
/// ```
#[derive(Clone)]
pub struct Access(Kind);

#[derive(Clone)]
enum Kind {
    Token(Token),
    Loopback,
    Application,
}

#[derive(Clone)]
struct Token {
    hash: blake3::Hash,
    cookie: blake3::Hash,
    /// Its own for each token: while the token changes, processes have two, and a browser keeps a cookie of each.
    cookie_name: String,
    wrong_tokens: Limiter,
}

/// A token that could be guessed.
#[derive(Clone, Debug)]
pub struct AccessError(String);

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no token, or a wrong one.
    LogIn,
    /// Its address has tried too many.
    Wait,
    /// It comes from somewhere else.
    Forbidden(&'static str),
}

const COOKIE: &str = "tollgate-console";
const SHORTEST: usize = 24;
/// What the metrics call the limit of wrong tokens.
const WRONG_TOKENS: &str = "console-wrong-tokens";

impl Access {
    /// Whoever has this token. The page asks for it once and keeps a cookie, which scripts cannot read and other sites cannot send;
    /// programs send it as `Authorization: Bearer`. The right token is let in always. Wrong ones are counted by address, of IPv6 by
    /// its /64: beyond ten a minute they get 429 and are not logged. Behind a proxy, all clients have one address.
    ///
    /// "Log out" takes the cookie from the browser. Who has a copy of it is let in until the token changes.
    ///
    /// # Errors
    ///
    /// A token of fewer than 24 characters.
    pub fn token(token: &str) -> Result<Self, AccessError> {
        let length = token.chars().count();
        if length < SHORTEST {
            return Err(AccessError(format!(
                "a token of {length} characters can be guessed; take at least {SHORTEST}, as `openssl rand -hex 32` prints them"
            )));
        }
        let cookie = blake3::derive_key(
            "tollgate-console 2026 the cookie of a token",
            token.as_bytes(),
        );
        let rule = Rule::new(WRONG_TOKENS, Quota::gcra(10, MINUTE));
        let wrong_tokens = Limiter::new(MemoryStore::new(), [rule]);
        Ok(Self(Kind::Token(Token {
            wrong_tokens: wrong_tokens.map_err(|wrong| AccessError(wrong.to_string()))?,
            hash: blake3::hash(token.as_bytes()),
            cookie: blake3::Hash::from_bytes(cookie),
            cookie_name: format!("{COOKIE}-{:.8}", blake3::hash(&cookie).to_hex()),
        })))
    }

    /// Whoever is on this machine: peers with a loopback address that ask for `localhost` or such an address, and through no proxy.
    /// Serve the router with [`ConnectInfo`]; without it nobody is let in.
    #[must_use]
    pub fn loopback() -> Self {
        Self(Kind::Loopback)
    }

    /// Whoever gets here: the application has a layer around the router that decides. Without one, everybody may change limits.
    ///
    /// The layer can say who it is by [`Operator`](crate::Operator), for the audit.
    #[must_use]
    pub fn by_application() -> Self {
        Self(Kind::Application)
    }

    /// Whether a request may be answered.
    pub(crate) fn check(&self, head: &Parts) -> Result<(), Refusal> {
        match &self.0 {
            Kind::Application => Ok(()),
            Kind::Loopback => loopback(head).map_err(Refusal::Forbidden),
            Kind::Token(token) => {
                // Both are compared as hashes, in constant time.
                let bearer = field(&head.headers, header::AUTHORIZATION.as_str())
                    .and_then(|it| it.strip_prefix("Bearer "));
                let is_own = |(name, value): (&str, &str)| {
                    name == token.cookie_name
                        && blake3::Hash::from_hex(value).is_ok_and(|it| it == token.cookie)
                };
                let has_token = bearer.is_some_and(|it| token.is(it));
                match has_token || cookies(&head.headers).any(is_own) {
                    true => Ok(()),
                    false if bearer.is_some() => Err(token.refuse(head)),
                    false => Err(Refusal::LogIn),
                }
            }
        }
    }

    /// Whether anybody, with a token or without, may see what has no secrets: the page before its log-in.
    pub(crate) fn shows_log_in(&self) -> bool {
        matches!(self.0, Kind::Token(_))
    }

    /// The cookie for who has this token. It is sent back on encrypted connections alone, if it was asked for on one.
    pub(crate) fn log_in(&self, token: &str, head: &Parts) -> Result<String, Refusal> {
        let Kind::Token(own) = &self.0 else {
            return Err(Refusal::LogIn);
        };
        if !own.is(token) {
            return Err(own.refuse(head));
        }
        let origin = field(&head.headers, header::ORIGIN.as_str()).unwrap_or_default();
        let secure = match origin.starts_with("https:") {
            true => "; Secure",
            false => "",
        };
        let (name, cookie) = (&own.cookie_name, own.cookie.to_hex());
        Ok(format!(
            "{name}={cookie}; HttpOnly; SameSite=Strict; Max-Age=43200{secure}"
        ))
    }

    /// The ends of all cookies of consoles that a request has.
    pub(crate) fn log_out(head: &Parts) -> impl Iterator<Item = String> {
        let of_consoles = cookies(&head.headers).filter(|(name, _)| name.starts_with(COOKIE));
        of_consoles.map(|(name, _)| format!("{name}=; HttpOnly; SameSite=Strict; Max-Age=0"))
    }
}

impl Token {
    fn is(&self, text: &str) -> bool {
        blake3::hash(text.as_bytes()) == self.hash
    }

    /// Counts a wrong token.
    fn refuse(&self, head: &Parts) -> Refusal {
        let peer = head.extensions.get::<ConnectInfo<SocketAddr>>();
        let key = peer.map_or_else(Key::shared, |ConnectInfo(peer)| Key::of(peer.ip()));
        let counted = self.wrong_tokens.try_acquire(WRONG_TOKENS, &key);
        if !counted.is_ok_and(|it| it.is_allowed()) {
            return Refusal::Wait;
        }
        tracing::warn!(target: "tollgate", "a request to the console with a wrong token");
        Refusal::LogIn
    }
}

/// Whether a page of another origin may have caused a request. Browsers say so; a program that says nothing is no browser.
pub(crate) fn refuse_other_sites(head: &Parts) -> Result<(), Refusal> {
    let is_get = head.method == Method::GET;
    let is_own = match field(&head.headers, "sec-fetch-site") {
        Some("same-origin") => true,
        Some("none") => is_get,
        Some(_) => is_get && field(&head.headers, "sec-fetch-mode") == Some("navigate"),
        None => head.headers.get(header::ORIGIN).is_none_or(|origin| {
            let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
            origin.is_some_and(|(_, authority)| Some(authority) == host(head))
        }),
    };
    let refusal = Refusal::Forbidden("it comes from another site");
    is_own.then_some(()).ok_or(refusal)
}

fn loopback(head: &Parts) -> Result<(), &'static str> {
    let peer = head.extensions.get::<ConnectInfo<SocketAddr>>();
    let Some(ConnectInfo(peer)) = peer else {
        return Err(
            "the service does not hand addresses to requests: serve it with into_make_service_with_connect_info::<SocketAddr>()",
        );
    };
    if !peer.ip().to_canonical().is_loopback() {
        return Err("it comes from another machine");
    }
    if ["forwarded", "x-forwarded-for", "x-real-ip", "via"]
        .iter()
        .any(|name| head.headers.contains_key(*name))
    {
        return Err("it comes through a proxy, behind which everybody is on this machine");
    }
    // The name of another site may point at this machine.
    let asked = host_of(host(head).unwrap_or_default().as_bytes());
    let name = str::from_utf8(&asked).unwrap_or_default();
    let address = name
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    match name == "localhost" || address.is_ok_and(|it| it.is_loopback()) {
        true => Ok(()),
        false => Err("it asks for another host than this machine"),
    }
}

fn host(head: &Parts) -> Option<&str> {
    let authority = head.uri.authority().map(|it| it.as_str());
    authority.or_else(|| field(&head.headers, header::HOST.as_str()))
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let fields = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|it| it.to_str().ok());
    let pairs = fields.flat_map(|field| field.split(';'));
    pairs.filter_map(|pair| pair.trim().split_once('='))
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Token(_) => "Access::token(..)",
            Kind::Loopback => "Access::loopback()",
            Kind::Application => "Access::by_application()",
        })
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AccessError {}
