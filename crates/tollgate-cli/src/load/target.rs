//! The server that is asked, and what it says.

use std::{
    error::Error,
    net::SocketAddr,
    time::{Duration, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use tokio::{net::lookup_host, sync::Semaphore, time::timeout};

use crate::{
    failure::Failure,
    load::load_args::LoadArgs,
    web::{self, HttpClient},
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and what each request to it has.
pub(crate) struct Target {
    client: HttpClient,
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
        let uri = web::uri(&args.url, "http://127.0.0.1:3000/search")?;
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
            client: web::client(),
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
            Ok(Err(why)) => web::causes(&*why),
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
