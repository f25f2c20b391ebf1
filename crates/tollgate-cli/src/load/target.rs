//! Which requests are sent and when, the server that is asked, and what it says.

use std::{
    error::Error,
    iter,
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
    args::{parse_header, parse_url},
    report::{Failure, causes},
};

const EXAMPLES: &str = "\
Examples:
  tollgate load http://127.0.0.1:3000/search --rate 60 --burst 100
  tollgate load http://127.0.0.1:3000/search --rate 200 --keys 50 --skew 1.1 --key-header x-api-key
  tollgate load http://127.0.0.1:3000/search --rate 10 --to 100 --seconds 30
  tollgate load http://127.0.0.1:8080/ --rate 60 --denied 503     # nginx, unless limit_req_status says otherwise

Requests are sent when they are due, whether or not others were answered. A time counts from when the request was due, so that a
server that stalls shows all of it. Exit code 1 if a client that obeyed Retry-After was denied, or a request failed.";

/// How many requests are sent at most.
const MOST: u64 = 1_000_000;

#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArgs {
    /// Where, as http://127.0.0.1:3000/search.
    url: String,

    /// Requests a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 10.0, value_parser = parse_number)]
    rate: f64,

    /// Requests a second at the end: the rate goes there evenly. Default: as at the start.
    #[arg(long, value_name = "NUMBER", value_parser = parse_number)]
    to: Option<f64>,

    /// Requests at once, before the others.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    burst: u64,

    /// How long.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// How many clients there are, each with a key of its own in a header.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: Option<u32>,

    /// How unequal they are, alike in each run: the n-th comes in proportion to 1 / n^SKEW; 0: all as often.
    #[arg(long, value_name = "SKEW", default_value_t = 1.0, value_parser = parse_number)]
    skew: f64,

    /// The header with the key.
    #[arg(long, value_name = "NAME", default_value = "x-api-key")]
    key_header: HeaderName,

    /// The method.
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: Method,

    /// A header; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// The status of a denial; may be given several times.
    #[arg(long, value_name = "STATUS", default_value = "429")]
    denied: Vec<u16>,

    /// How many connections there are at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    connections: u32,

    /// How often a client that obeys Retry-After tries, after the load.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    pub(crate) obey: u32,

    /// The server may be loaded, although it is not on this machine.
    #[arg(long)]
    target_is_mine: bool,
}

impl LoadArgs {
    /// How many requests are sent: at once, and after that.
    pub(crate) fn requests(&self) -> Result<u64, Failure> {
        let mean = f64::midpoint(self.rate, self.to.unwrap_or(self.rate));
        // A product that is whole but for rounding is whole.
        let after = (mean * self.seconds as f64 + 1e-9) as u64;
        match self.burst.saturating_add(after) {
            number @ 1..=MOST => Ok(number),
            number => Err(Failure::usage(format!(
                "these are {number} requests, and it takes 1 to {MOST}; change --rate, --seconds or --burst"
            ))),
        }
    }

    /// When the request with this number is due, from 0.
    pub(crate) fn due(&self, number: u64) -> Duration {
        let after = match number.saturating_sub(self.burst) {
            0 => return Duration::ZERO,
            after => after as f64,
        };
        // By then, `rate · t + growth · t² / 2` requests are due.
        let growth = (self.to.unwrap_or(self.rate) - self.rate) / self.seconds as f64;
        let then = (self.rate * self.rate + 2.0 * growth * after)
            .max(0.0)
            .sqrt();
        Duration::from_secs_f64(2.0 * after / (self.rate + then))
    }

    /// Whose request is next, from 0. The first client comes most often.
    pub(crate) fn clients(&self) -> impl Iterator<Item = u32> {
        let clients = 1..=self.keys.unwrap_or(1);
        // The sums of their shares, up to each.
        let sums = clients.scan(0.0, |sum, client| {
            *sum += f64::from(client).powf(-self.skew);
            Some(*sum)
        });
        let sums: Vec<f64> = sums.collect();
        let total = sums.last().copied().unwrap_or_default();
        let mut random = fastrand::Rng::with_seed(1);
        iter::repeat_with(move || {
            let at = random.f64() * total;
            sums.partition_point(|sum| *sum <= at) as u32
        })
    }

    /// The header with the key of a client.
    fn key_of(&self, client: u32) -> Option<(HeaderName, HeaderValue)> {
        self.keys?;
        let value = HeaderValue::try_from(format!("load-{}", client + 1)).ok()?;
        Some((self.key_header.clone(), value))
    }
}

fn parse_number(text: &str) -> Result<f64, &'static str> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    number.ok_or("it is a number from 0 on")
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and what each request to it has.
pub(crate) struct Target {
    args: LoadArgs,
    client: Client<HttpConnector, Empty<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
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
        let uri = parse_url(&args.url, "http://127.0.0.1:3000/search")?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let found = lookup_host((host, uri.port_u16().unwrap_or(80)))
            .await
            .map_err(|why| Failure::failed(format!("{}: {why}", args.url)))?;
        let addresses: Vec<SocketAddr> = found.collect();
        let is_here = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        if !args.target_is_mine && !addresses.iter().all(is_here) {
            return Err(Failure::usage(format!(
                "{} is not on this machine: a load on another's server is an attack. If it is yours, and may be loaded, say so with \
                 --target-is-mine",
                args.url
            )));
        }
        let mut headers = args
            .headers
            .iter()
            .map(|header| parse_header(header))
            .collect::<Result<HeaderMap, Failure>>()?;
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
            args: args.clone(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            uri: format!("http://{address}{path}")
                .parse()
                .map_err(Failure::failed)?,
            headers,
            connections: Semaphore::new(args.connections as usize),
        })
    }

    /// Sends a request of a client, and calls `sent` when it goes out.
    pub(crate) async fn ask(&self, client: u32, sent: impl FnOnce()) -> Answer {
        // It is never closed.
        let _place = self.connections.acquire().await;
        let status = match timeout(PATIENCE, self.send(client, sent)).await {
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
        client: u32,
        sent: impl FnOnce(),
    ) -> Result<Answer, Box<dyn Error + Send + Sync>> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = self.args.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(self.args.key_of(client));
        sent();
        let (head, mut body) = self.client.request(request).await?.into_parts();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        let is_denied = self.args.denied.contains(&head.status.as_u16());
        let is_of_limits = |name: &str| name.trim_start_matches("x-").starts_with("ratelimit");
        let fields = head
            .headers
            .iter()
            .filter(|(name, _)| is_of_limits(name.as_str()));
        Ok(Answer {
            status: head.status.as_str().to_owned(),
            kind: match is_denied {
                true => Kind::Denied,
                false => Kind::Allowed,
            },
            retry_after: retry_after(&head.headers),
            limits: fields
                .map(|(name, value)| {
                    format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
                })
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
    use clap::{Command, FromArgMatches as _};

    use super::*;

    fn args(text: &str) -> LoadArgs {
        let command = LoadArgs::augment_args(Command::new("load"));
        let words = ["load", "http://127.0.0.1/"].into_iter();
        let matches = command.get_matches_from(words.chain(text.split(' ')));
        LoadArgs::from_arg_matches(&matches).expect("arguments")
    }

    #[test]
    fn requests_are_due_as_the_rate_says() {
        for (text, requests, due) in [
            ("--rate 20 --burst 5", 205, [(4, 0), (5, 0), (105, 5)]),
            // A quarter of them in the first half.
            ("--rate 0 --to 100", 500, [(0, 0), (125, 5), (500, 10)]),
            ("--rate 100 --to 0", 500, [(0, 0), (375, 5), (500, 10)]),
        ] {
            let args = args(text);
            assert_eq!(args.requests().ok(), Some(requests), "{text}");
            for (number, seconds) in due {
                let due = Duration::from_secs(seconds);
                assert_eq!(args.due(number), due, "{text}: {number}");
            }
        }
    }

    #[test]
    fn clients_come_as_the_skew_says() {
        // 6 : 3 : 2.
        for (text, shares) in [
            ("--keys 3", [60_000, 30_000, 20_000]),
            ("--keys 2 --skew 0", [55_000, 55_000, 0]),
        ] {
            let mut counts = [0_u32; 3];
            for client in args(text).clients().take(110_000) {
                counts[client as usize] += 1;
            }
            for (count, share) in counts.into_iter().zip(shares) {
                assert!(count.abs_diff(share) < 1_000, "{text}: {counts:?}");
            }
        }
    }

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
