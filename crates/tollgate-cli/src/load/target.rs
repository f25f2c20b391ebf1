//! Which requests are sent, the server that is asked, and what it says.

use std::{
    error::Error,
    net::SocketAddr,
    time::{Duration, UNIX_EPOCH},
};

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{net::lookup_host, sync::Semaphore, time::timeout};

use crate::{
    args::parse_header,
    report::{self, Failure},
};

const EXAMPLES: &str = "\
Examples:
  tollgate load http://127.0.0.1:3000/search --rate 60 --burst 100
  tollgate load http://127.0.0.1:3000/search --rate 200 --keys 50 --key-header x-api-key
  tollgate load http://127.0.0.1:8080/ --rate 60 --denied 503     # nginx, unless limit_req_status says otherwise

Requests are sent when they are due, whether or not others were answered. A time counts from when the request was due, so that a
server that stalls shows all of it. Exit code 1 if a client that obeyed Retry-After was denied, or a request failed.";

/// How many requests are sent at most.
const MOST: u64 = 1_000_000;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArgs {
    /// Where, as http://127.0.0.1:3000/search.
    pub(crate) url: String,

    /// Requests a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 10.0)]
    pub(crate) rate: f64,

    /// Requests at once, before the others.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) burst: u64,

    /// How long.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// How many clients there are, each with a key of its own in a header. They come in turn.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: Option<u32>,

    /// The header with the key.
    #[arg(long, value_name = "NAME", default_value = "x-api-key")]
    key_header: HeaderName,

    /// The method.
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: Method,

    /// A header; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// The status of a denial; may be given several times.
    #[arg(long, value_name = "STATUS", default_value = "429")]
    pub(crate) denied: Vec<u16>,

    /// How many connections there are at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(crate) connections: u32,

    /// How often a client that obeys Retry-After tries, after the load.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(crate) obey: u32,

    /// The server may be loaded, although it is not on this machine.
    #[arg(long)]
    pub(crate) target_is_mine: bool,
}

impl LoadArgs {
    /// How many requests are sent: at once, and after that.
    pub(crate) fn requests(&self) -> Result<u64, Failure> {
        // A product that is whole but for rounding is whole; one that is no number is 0.
        let after = (self.rate * self.seconds as f64 + 1e-9) as u64;
        match self.burst.saturating_add(after) {
            number @ 1..=MOST => Ok(number),
            number => Err(Failure::usage(format!(
                "these are {number} requests, and it takes 1 to {MOST}; change --rate, --seconds or --burst"
            ))),
        }
    }

    /// When the request with this number is due, from 0.
    pub(crate) fn due(&self, number: u64) -> Duration {
        match number.saturating_sub(self.burst) {
            0 => Duration::ZERO,
            after => Duration::from_secs_f64(after as f64 / self.rate),
        }
    }

    /// The headers of all requests.
    pub(crate) fn headers(&self) -> Result<HeaderMap, Failure> {
        self.headers
            .iter()
            .map(|header| parse_header(header))
            .collect()
    }

    /// The header with the key of a client.
    pub(crate) fn key_of(&self, client: u32) -> Option<(HeaderName, HeaderValue)> {
        self.keys?;
        let value = HeaderValue::try_from(format!("load-{}", client + 1)).ok()?;
        Some((self.key_header.clone(), value))
    }
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and what each request to it has.
pub(crate) struct Target {
    client: Client<HttpConnector, Empty<Bytes>>,
    uri: Uri,
    method: Method,
    headers: HeaderMap,
    denials: Vec<u16>,
    /// As many as there may be connections.
    connections: Semaphore,
}

/// What a server says to a request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The status; or why there is none.
    pub(crate) status: String,
    pub(crate) kind: Kind,
    /// The wait of `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
    /// The fields that say what is left.
    pub(crate) limits: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    Allowed,
    Denied,
    #[default]
    Failed,
}

impl Target {
    /// Finds the server, which is on this machine unless it is said to be one's own.
    pub(crate) async fn find(args: &LoadArgs) -> Result<Self, Failure> {
        let uri = uri(&args.url)?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let found = lookup_host((host, uri.port_u16().unwrap_or(80))).await;
        let found = found.map_err(|why| Failure::failed(format!("{}: {why}", args.url)))?;
        let addresses: Vec<SocketAddr> = found.collect();
        let is_here = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        if !args.target_is_mine && !addresses.iter().all(is_here) {
            return Err(Failure::usage(format!(
                "{} is not on this machine: a load on another's server is an attack. If it is yours, and may be loaded, say so with \
                 --target-is-mine",
                args.url
            )));
        }
        let mut headers = args.headers()?;
        if let Some(authority) = uri.authority()
            && !headers.contains_key(header::HOST)
        {
            let host = HeaderValue::from_str(authority.as_str());
            headers.extend(host.map(|host| (header::HOST, host)));
        }
        // By the address that was looked at, whatever its name leads to later.
        let address = addresses
            .first()
            .map_or_else(String::new, ToString::to_string);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            uri: format!("http://{address}{path}")
                .parse()
                .map_err(Failure::failed)?,
            method: args.method.clone(),
            headers,
            denials: args.denied.clone(),
            connections: Semaphore::new(args.connections as usize),
        })
    }

    /// Sends a request, with a header of its own, and calls `sent` when it goes out.
    pub(crate) async fn ask(
        &self,
        own: Option<(HeaderName, HeaderValue)>,
        sent: impl FnOnce(),
    ) -> Answer {
        // It is never closed.
        let _place = self.connections.acquire().await;
        let status = match timeout(PATIENCE, self.send(own, sent)).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(why)) => causes(&*why),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        Answer {
            status,
            ..Answer::default()
        }
    }

    async fn send(
        &self,
        own: Option<(HeaderName, HeaderValue)>,
        sent: impl FnOnce(),
    ) -> Result<Answer, Box<dyn Error + Send + Sync>> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(own);
        sent();
        let (head, mut body) = self.client.request(request).await?.into_parts();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        let is_denied = self.denials.contains(&head.status.as_u16());
        let is_of_limits = |name: &str| name.trim_start_matches("x-").starts_with("ratelimit");
        let fields = head.headers.iter();
        let fields = fields.filter(|(name, _)| is_of_limits(name.as_str()));
        Ok(Answer {
            status: head.status.as_str().to_owned(),
            kind: if is_denied {
                Kind::Denied
            } else {
                Kind::Allowed
            },
            retry_after: retry_after(&head.headers),
            limits: fields
                .map(|(name, value)| format!("{name}: {}", value.as_bytes().escape_ascii()))
                .collect(),
        })
    }
}

/// A URL that can be asked.
fn uri(url: &str) -> Result<Uri, Failure> {
    let wrong = |why: &str| {
        let url = report::line(url, 200);
        Failure::usage(format!(
            "{url}: {why}; write it as http://127.0.0.1:3000/search"
        ))
    };
    let uri = url.parse::<Uri>().map_err(|_| wrong("it is no URL"))?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong(
            "only http is spoken; ask the service behind its proxy",
        ));
    }
    match uri.authority() {
        Some(it) if it.as_str().contains('@') => Err(wrong("it has a user")),
        // Only what is no number of a port follows the host then.
        Some(it) if it.port_u16().is_none() && it.as_str() != it.host() => {
            Err(wrong("its port is not a number from 1 to 65535"))
        }
        _ => Ok(uri),
    }
}

/// An error with its causes.
fn causes(wrong: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(wrong), |&wrong| wrong.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

/// Seconds, or a date on the clock of the server.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.trim());
    let date = |text: &str| {
        let date = httpdate::parse_http_date(text).ok()?;
        date.duration_since(UNIX_EPOCH).ok()
    };
    let wait = text(header::RETRY_AFTER)?;
    match wait.parse::<u32>() {
        Ok(seconds) => Some(Duration::from_secs(seconds.into())),
        Err(_) => Some(date(wait)?.saturating_sub(date(text(header::DATE)?)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_says_when_to_come_back_in_seconds_or_as_a_date() {
        let date = "Fri, 27 Nov 2026 12:00:00 GMT";
        for (text, wait) in [
            ("7", Some(7)),
            ("Fri, 27 Nov 2026 12:00:09 GMT", Some(9)),
            ("Fri, 27 Nov 2026 11:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::DATE, HeaderValue::from_static(date));
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(text));
            assert_eq!(
                retry_after(&headers),
                wait.map(Duration::from_secs),
                "{text}"
            );
        }
    }
}
