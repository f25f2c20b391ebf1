//! Arguments that several commands have: which Redis, who changes something and why, a request.

use std::{
    io::{self, Write as _},
    net::IpAddr,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, Uri, request::Parts};
use jiff::{Span, SpanRelativeTo, Timestamp, Unit};
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tollgate::key::PeerAddr;
use tollgate_redis::{Address, Keys, Partition, RedisStore, Secret, SetupError, SetupErrorKind};
use tollgate_rules::{
    AuditKind, Author,
    operators::{Descriptor, Explanation},
    redis::{Certificates, RedisRules},
};

use crate::report::{self, Failure};

/// How long Redis may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);

/// Which Redis, and how the service writes to it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Redis")]
pub(crate) struct RedisArgs {
    /// Its address, as the service has it: redis://host, redis-sentinel://…, redis-cluster://… or unix://path; with
    /// rediss instead of redis it is encrypted.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "REDIS_URL",
        hide_env_values = true
    )]
    redis: String,

    /// The namespace of the service.
    #[arg(long, value_name = "NAME", env = "TOLLGATE_NAMESPACE")]
    pub(crate) namespace: String,

    /// For rediss://: the authorities that certificates may come from, in a PEM file. Default: those of the system.
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CA")]
    ca: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

/// How the service writes keys.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyArgs {
    /// The service writes keys as they are: `Keys::plain`.
    #[arg(long)]
    plain_keys: bool,

    /// The partition of the service: one, key, or by-rule:NAME. Default: wherever a state may be, on a cluster too.
    #[arg(long, value_name = "PARTITION")]
    pub(crate) partition: Option<Partition>,
}

const SECRET: &str = "TOLLGATE_SECRET";

/// Where the secret of the service is. It is never an argument, which every user of the machine can read.
#[derive(Args, Clone, Debug)]
pub(crate) struct SecretArgs {
    /// A file with the service's secret, in the place of the environment variable TOLLGATE_SECRET.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl KeyArgs {
    /// The partition of the service, for what changes a state.
    pub(crate) fn one_partition(&self, redis: &RedisArgs) -> Result<Partition, Failure> {
        match (&self.partition, redis.redis.contains("-cluster://")) {
            (Some(partition), _) => Ok(partition.clone()),
            (None, false) => Ok(Partition::One),
            (None, true) => Err(Failure::usage(
                "it happens where the service has its states: say by which --partition, one or key or by-rule:NAME",
            )),
        }
    }
}

impl RedisArgs {
    pub(crate) fn address(&self) -> Result<Address, Failure> {
        let address: Result<Address, SetupError> = self.redis.parse();
        address.map_err(|wrong| Failure::usage(format!("--redis: {wrong}")))
    }

    /// Whom an encrypted connection trusts. `None`: the address does not ask for encryption.
    pub(crate) fn certificates(&self) -> Result<Option<Certificates>, Failure> {
        // It may have been done before.
        let _ = default_provider().install_default();
        let trusted = Certificates::of_address(&self.address()?, self.ca.as_deref());
        trusted.map_err(|wrong| Failure::usage(format!("--ca {wrong}")))
    }

    /// The rules in Redis.
    pub(crate) fn rules(&self, secret: &Secret) -> Result<RedisRules, Failure> {
        let trusted = self.certificates()?;
        Ok(RedisRules::with_tls(
            &*self.redis,
            &self.namespace,
            secret,
            trusted,
        )?)
    }

    /// The states in Redis, by one partition. What `changes` none of them can be done while Redis refuses writes.
    pub(crate) async fn store(
        &self,
        keys: &KeyArgs,
        partition: Partition,
        changes: bool,
    ) -> Result<RedisStore, Failure> {
        let keys = match keys.plain_keys {
            true => Keys::plain(),
            false => Keys::hashed(self.secret.secret()?),
        };
        let mut builder = RedisStore::builder(&*self.redis, &self.namespace, keys);
        if let Some(trusted) = self.certificates()? {
            builder = builder.tls(trusted.client_config()?);
        }
        // It is no instance of the service, whose shares it must not make smaller.
        let builder = builder
            .without_heartbeats()
            .partition(partition)
            .deadline(PATIENCE)
            // Its end has to be seen before ours: it says what was waited for.
            .connect_timeout(CONNECT_PATIENCE);
        let failed = |why: String| {
            Failure::failed(format!(
                "{why}\n`tollgate doctor` says what is wrong with a Redis"
            ))
        };
        let made = match changes {
            true => builder.connect_within(PATIENCE).await,
            false => builder.connect(),
        };
        let store = made.map_err(|wrong| match wrong.kind() {
            SetupErrorKind::NotConnected => failed(wrong.to_string()),
            _ => Failure::usage(wrong),
        })?;
        let connected = timeout(PATIENCE, store.connected()).await;
        connected.map_err(|_| {
            let why = store.connection_error();
            failed(why.unwrap_or_else(|| "Redis is not connected yet".to_owned()))
        })?;
        Ok(store)
    }

    /// Writes what was done to clients of rules into the audit, or warns: it is done, whatever becomes of the record. Keys without a
    /// secret have none.
    pub(crate) async fn record(
        &self,
        kind: AuditKind,
        clients: &[&Explanation],
        what: &str,
        author: &Author,
    ) {
        let record = async {
            let mut recorded = Ok(());
            if let Some(secret) = self.secret.find()? {
                let redis = self.rules(&secret)?;
                for client in clients {
                    let record = redis.record(kind, &client.rule, client.key_hash, what, author);
                    recorded = recorded.and(record.await);
                }
            }
            Ok::<_, Failure>(recorded?)
        };
        if let Err(wrong) = record.await {
            report::warn(&format!("the audit has no record of it: {}", wrong.message));
        }
    }
}

impl SecretArgs {
    /// The secret, if there is one.
    pub(crate) fn find(&self) -> Result<Option<Secret>, Failure> {
        let is_there = self.secret_file.is_some() || std::env::var_os(SECRET).is_some();
        is_there.then(|| self.secret()).transpose()
    }

    /// The secret.
    pub(crate) fn secret(&self) -> Result<Secret, Failure> {
        let Some(path) = &self.secret_file else {
            return Secret::from_env(SECRET)
                .map_err(|wrong| Failure::usage(format!("{wrong}; or name a --secret-file")));
        };
        let wrong = |why: String| Failure::usage(format!("--secret-file {}{why}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|why| wrong(format!(" cannot be read: {why}")))?;
        Secret::from_text(&text).map_err(|why| wrong(format!(": {why}")))
    }
}

/// Who changes something, where it is not said.
const UNKNOWN: &str = "unknown";

/// Who and why, for the audit.
#[derive(Args, Clone, Debug)]
pub(crate) struct BecauseArgs {
    /// Who does it, for the audit.
    #[arg(long, value_name = "NAME", env = "USER", default_value = UNKNOWN)]
    by: String,

    /// The reason, which the audit shows.
    #[arg(long, value_name = "TEXT")]
    pub(crate) because: String,
}

/// Whether to ask.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct YesArgs {
    /// Does it without a question.
    #[arg(long, short = 'y')]
    yes: bool,
}

/// When it ends.
#[derive(Args, Clone, Debug)]
pub(crate) struct UntilArgs {
    /// When it ends: a time with its zone, as 2026-12-04T18:00:00Z, or how long it lasts, as 2h or 3d. Default: never.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

impl UntilArgs {
    /// When it ends, by the clock that says that it is `now`.
    pub(crate) fn time(&self, now: SystemTime) -> Result<Option<SystemTime>, Failure> {
        let Some(text) = &self.until else {
            return Ok(None);
        };
        let span = text.parse::<Span>();
        let duration = span.and_then(|it| it.to_duration(SpanRelativeTo::days_are_24_hours()));
        let until = match (text.parse::<Timestamp>(), duration) {
            (Ok(at), _) => Ok(at),
            // Whole seconds are easier to read.
            (_, Ok(duration)) if duration.is_positive() => Timestamp::try_from(now)
                .and_then(|now| now.checked_add(duration)?.round(Unit::Second)),
            _ => {
                return Err(Failure::argument(
                    "until",
                    text,
                    "write a time with its zone, as 2026-12-04T18:00:00Z or 2026-12-04T18:00+01:00, or how long it lasts, as 90min, 2h or 3d",
                ));
            }
        };
        let until = until.map_err(|_| {
            Failure::usage("--until: no calendar has that day; leave it out for ever")
        })?;
        Ok(Some(until.into()))
    }
}

impl BecauseArgs {
    /// The author of a change that needs a reason.
    pub(crate) fn author(&self) -> Result<Author, Failure> {
        match self.because.trim() {
            "" => Err(Failure::usage(
                "--because: say why in some words, as --because 'ticket 4711'",
            )),
            _ => Ok(self.author_of_push()),
        }
    }

    /// That of a push, which may do without.
    pub(crate) fn author_of_push(&self) -> Author {
        let by = match self.by.trim() {
            // A container often sets USER to nothing.
            "" => UNKNOWN,
            by => by,
        };
        Author::new(by).because(self.because.trim())
    }
}

impl YesArgs {
    /// Says what will be done, and asks. The question goes to the standard error.
    ///
    /// # Errors
    ///
    /// The answer is not yes.
    pub(crate) fn ask(self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let _ = write!(io::stderr(), "{}\ngo on? [y/N] ", report::lines(what));
        let mut answer = String::new();
        // What cannot be read is no yes.
        let _ = io::stdin().read_line(&mut answer);
        if ["y", "yes"].contains(&&*answer.trim().to_lowercase()) {
            return Ok(());
        }
        Err(match answer.is_empty() {
            true => Failure::usage(
                "nothing has changed: nobody has answered; --yes does it without a question",
            ),
            false => Failure::refused("nothing has changed"),
        })
    }
}

/// A request.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "The request")]
pub(crate) struct RequestArgs {
    /// Its method; default: GET.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,

    /// Its path, with the query if there is one; default: /.
    #[arg(long, value_name = "PATH")]
    path: Option<String>,

    /// A header; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// The client's address.
    #[arg(long, value_name = "ADDRESS")]
    client_ip: Option<String>,

    /// An entry of Envoy's descriptor, with --at edge; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", requires = "at", value_parser = |pair: &str| parse_pair(pair, "tenant=acme"))]
    descriptor: Vec<(String, String)>,

    /// The domain of Envoy's filter, with --at edge.
    #[arg(long, value_name = "DOMAIN", requires = "at")]
    domain: Option<String>,
}

impl RequestArgs {
    pub(crate) fn head(&self) -> Result<Parts, Failure> {
        let (mut head, ()) = Request::new(()).into_parts();
        if let Some(method) = &self.method {
            let wrong = |_| Failure::argument("method", method, "it is no method, as POST is");
            head.method = Method::from_bytes(method.as_bytes()).map_err(wrong)?;
        }
        if let Some(path) = &self.path {
            let uri = path.parse().ok().filter(|_| path.starts_with('/'));
            let right = "a path begins with a slash, and has spaces and other letters escaped, as /search?q=a%20b";
            head.uri = uri.ok_or_else(|| Failure::argument("path", path, right))?;
        }
        for header in &self.headers {
            let (name, value) = parse_header(header)?;
            head.headers.append(name, value);
        }
        if let Some(client) = &self.client_ip {
            let right = "write an address, as 192.0.2.7 or 2001:db8::1";
            let address = client
                .parse::<IpAddr>()
                .map_err(|_| Failure::argument("client-ip", client, right))?;
            head.extensions.insert(PeerAddr((address, 0).into()));
        }
        if self.domain.is_some() || !self.descriptor.is_empty() {
            let domain = self.domain.as_deref().unwrap_or_default();
            let entries = self.descriptor.iter().map(|(key, value)| (key, value));
            Descriptor::new(domain, entries).describe(&mut head);
        }
        Ok(head)
    }
}

/// A name and a value, as `example`.
pub(crate) fn parse_pair(pair: &str, example: &str) -> Result<(String, String), String> {
    match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("write it as {example}")),
    }
}

pub(crate) fn parse_header(header: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let (name, value) = header.split_once(':').unwrap_or((header, ""));
    let wrong = |what: &str| {
        let why = format!("{what}; write it as 'x-api-key: acme'");
        Failure::argument("header", name, why)
    };
    if name == header {
        return Err(wrong("it has no colon"));
    }
    let header = HeaderName::from_bytes(name.trim().as_bytes())
        .map_err(|_| wrong("this is not the name of a header"))?;
    let value = HeaderValue::from_bytes(value.trim().as_bytes());
    let control = "a value has no control characters, such as line feeds";
    Ok((header, value.map_err(|_| wrong(control))?))
}

/// A URL that can be asked; `example` is one that is right.
pub(crate) fn parse_url(url: &str, example: &str) -> Result<Uri, Failure> {
    let wrong = |why: &str| {
        let url = report::line(url, 200);
        Failure::usage(format!("{url}: {why}; write it as {example}"))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_end_is_a_time_or_how_long_it_lasts() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        for (text, seconds) in [
            ("2h", Some(8_200)),
            ("90min", Some(6_400)),
            ("3d", Some(260_200)),
            ("1970-01-01T01:00:00Z", Some(3_600)),
            ("1970-01-01T01:00+01:00", Some(0)),
            ("friday", None),
            ("2026-12-04", None),
            ("-2h", None),
            ("0s", None),
            ("", None),
        ] {
            let until = UntilArgs {
                until: Some(text.to_owned()),
            };
            let at = until.time(now).ok().flatten();
            let after = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
            assert_eq!(after.map(|after| after.as_secs()), seconds, "{text}");
        }
        let until = Some("90000000h".to_owned());
        let wrong = UntilArgs { until }.time(now);
        assert!(wrong.is_err_and(|wrong| wrong.message.contains("no calendar")));
    }
}
