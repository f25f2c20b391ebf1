//! The settings file.

use std::{
    fmt::{self, Display},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de::Error as _};
use tollgate::{header::HeaderStyle, siblings::network};
use tollgate_redis::{Keys, Partition, Secret};
use toml::Spanned;

use crate::mistakes::Mistakes;

/// How long a store may take by default. Envoy waits for 20 ms by default, and then lets its client pass.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(10);

/// The secret of services, where no file has it.
pub(crate) const SECRET: &str = "TOLLGATE_SECRET";

/// The settings of a server, as its file has them. See [`read`](Self::read).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub(crate) rules: Option<PathBuf>,
    pub(crate) redis: Option<RedisSettings>,
    pub(crate) ledger: Option<LedgerSettings>,
    pub(crate) grpc: Option<DoorSettings>,
    #[serde(default)]
    pub(crate) http: Vec<DoorSettings>,
    pub(crate) metrics: Option<Spanned<Listen>>,
    /// Where operators find the console: on this machine.
    pub(crate) console: Option<Spanned<Listen>>,
    /// How long the server answers that it is going to end, before it ends.
    #[serde(default = "drain")]
    pub(crate) drain_seconds: Spanned<u64>,
}

/// The Redis that holds the budgets, and perhaps the rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedisSettings {
    address: Option<String>,
    pub(crate) namespace: String,
    secret_file: Option<PathBuf>,
    #[serde(default)]
    plain_keys: bool,
    #[serde(default, deserialize_with = "partition")]
    pub(crate) partition: Option<Partition>,
    pub(crate) ca: Option<PathBuf>,
    deadline_ms: Option<Spanned<u64>>,
    /// Whether the rules are those that were pushed there.
    #[serde(default)]
    pub(crate) rules: bool,
}

/// The database that durable rules are written to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerSettings {
    url: Option<String>,
}

/// Where proxies ask, and how.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DoorSettings {
    pub(crate) listen: Spanned<Listen>,
    /// How requests are described: Envoy's protocol has one way.
    pub(crate) style: Option<Style>,
    #[serde(default, deserialize_with = "networks")]
    pub(crate) allow: Vec<IpNet>,
    pub(crate) tls: Option<TlsSettings>,
    #[serde(default = "draft_11", deserialize_with = "header_style")]
    pub(crate) headers: HeaderStyle,
    max_connection_age_seconds: Option<u64>,
}

/// The certificate of a door, and who else has one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSettings {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    #[serde(default, deserialize_with = "names")]
    pub(crate) san: Vec<String>,
}

/// How a proxy describes the request that it asks about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Style {
    /// By `X-Forwarded-*`; and a request that it asks about twice has one `X-Request-Id`.
    Nginx,
    /// By `X-Forwarded-*`.
    Forwarded,
    /// By the check's own method and path.
    Envoy,
}

/// An address to listen on.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self::Unix(path.into())),
            _ => text.parse().map(Self::Tcp).map_err(|_| {
                format!("{text:?} is no address to listen on; write \"127.0.0.1:8081\", \"[::1]:8081\" or \"unix:/run/tollgate.sock\"")
            }),
        }
    }
}

impl Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Listen {
    /// Whether only this machine reaches it by an address.
    fn is_loopback(&self) -> bool {
        matches!(self, Self::Tcp(address) if address.ip().is_loopback())
    }
}

impl Settings {
    /// Reads a file. Paths in it begin at its folder.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, a line each.
    pub fn read(file: impl AsRef<Path>) -> Result<Self, Mistakes> {
        let file = file.as_ref();
        let text = std::fs::read_to_string(file).map_err(|why| Mistakes::of(file, why))?;
        let mut mistakes = Mistakes::default();
        let mut settings: Self = match toml::from_str(&text) {
            Ok(settings) => settings,
            Err(wrong) => {
                let span = wrong.span().unwrap_or(0..0);
                let message = match text.get(span.start..).unwrap_or_default() {
                    it if it.starts_with("[http]") => {
                        "write [[http]]: there may be several".to_owned()
                    }
                    it if it.starts_with("[[grpc]]") => {
                        "write [grpc], once: it is one door".to_owned()
                    }
                    _ => wrong.message().replace('\n', "; "),
                };
                mistakes.add_at(file, &text, span, message);
                return Err(mistakes);
            }
        };
        settings.resolve(file.parent().unwrap_or(Path::new("")));
        for (span, message) in settings.mistakes() {
            mistakes.add_at(file, &text, span, message);
        }
        mistakes.or(settings)
    }

    pub(crate) fn doors(&self) -> impl Iterator<Item = &DoorSettings> {
        self.grpc.iter().chain(&self.http)
    }

    pub(crate) fn listens(&self) -> impl Iterator<Item = &Spanned<Listen>> {
        let doors = self.doors().map(|door| &door.listen);
        doors.chain(&self.console).chain(&self.metrics)
    }

    /// Lets paths begin at the folder of the file.
    fn resolve(&mut self, folder: &Path) {
        let doors = self.grpc.iter_mut().chain(&mut self.http);
        let of_doors = doors.map(|door| &mut door.listen);
        for listen in of_doors.chain(&mut self.console).chain(&mut self.metrics) {
            if let Listen::Unix(path) = listen.as_mut() {
                *path = folder.join(&*path);
            }
        }
        if let Some(LedgerSettings { url: Some(url) }) = &mut self.ledger
            && let Some(file) = url.strip_prefix("sqlite:").filter(|it| !it.contains(':'))
        {
            let file = folder.join(file.strip_prefix("//").unwrap_or(file));
            // A path that begins with two slashes would be read as a URL again.
            let file: PathBuf = file.components().collect();
            *url = format!("sqlite:{}", file.display());
        }
        let doors = self.grpc.iter_mut().chain(&mut self.http);
        let of_doors = doors.filter_map(|door| door.tls.as_mut()).flat_map(|tls| {
            [&mut tls.cert, &mut tls.key]
                .into_iter()
                .chain(tls.client_ca.as_mut())
        });
        let redis = self.redis.iter_mut();
        let of_redis = redis.flat_map(|it| [&mut it.ca, &mut it.secret_file]);
        for path in (of_redis.flatten().chain(&mut self.rules)).chain(of_doors) {
            *path = folder.join(&*path);
        }
    }

    fn mistakes(&self) -> Vec<(std::ops::Range<usize>, String)> {
        let mut all = Vec::new();
        if self.doors().next().is_none() {
            all.push((0..0, "nothing listens; add [grpc] for Envoy, or [[http]] for other proxies, with listen = \"127.0.0.1:8081\"".to_owned()));
        }
        if self.rules.is_none() && !self.redis.as_ref().is_some_and(|redis| redis.rules) {
            all.push((0..0, "there are no rules; add rules = \"limits.toml\", or rules = true to [redis] for those that are pushed there".to_owned()));
        }
        let console = self.console.iter().map(|it| (it.span(), it.as_ref()));
        for (span, listen) in console.filter(|(_, it)| !it.is_loopback()) {
            all.push((span, format!("the console is for this machine, and {listen} is not; write console = \"127.0.0.1:8082\"")));
        }
        let deadline = self.redis.as_ref().and_then(|it| it.deadline_ms.as_ref());
        if let Some(wrong) = deadline.filter(|it| !(1..=1_000).contains(it.as_ref())) {
            let message =
                "deadline_ms is 1 to 1000; 10 is usual, and below the 20 that Envoy waits";
            all.push((wrong.span(), message.to_owned()));
        }
        if *self.drain_seconds.as_ref() > 600 {
            let message = "drain_seconds is at most 600";
            all.push((self.drain_seconds.span(), message.to_owned()));
        }
        let mut taken = Vec::new();
        for (span, listen) in self.listens().map(|it| (it.span(), it.as_ref())) {
            let is_chosen = matches!(listen, Listen::Tcp(address) if address.port() == 0);
            if !is_chosen && taken.contains(&listen) {
                all.push((span, format!("{listen} is there twice; give each door, the console and the metrics an address of its own")));
            }
            taken.push(listen);
        }
        let of_grpc = self.grpc.iter().map(|door| (door, false));
        for (door, is_http) in of_grpc.chain(self.http.iter().map(|door| (door, true))) {
            let messages = door.mistakes(is_http).into_iter();
            all.extend(messages.map(|message| (door.listen.span(), message)));
        }
        all
    }
}

impl DoorSettings {
    /// When connections end, so that new servers get their part of those that last. Of HTTP/1.1 none does by itself: it has no way to
    /// say so before the next request comes.
    pub(crate) fn max_connection_age(&self) -> Option<Duration> {
        let usual = self.style.is_none().then_some(300);
        self.max_connection_age_seconds
            .or(usual)
            .map(Duration::from_secs)
    }

    /// Whether a peer may ask. One on a Unix socket has no address.
    pub(crate) fn allows(&self, peer: Option<IpAddr>) -> bool {
        let is_listed = |peer: IpAddr| self.allow.iter().any(|network| network.contains(&peer));
        let is_local = |peer: IpAddr| peer.is_loopback() || is_listed(peer);
        // With certificates of clients these alone decide, unless networks are named too.
        let by_certificate = self.has_client_ca() && self.allow.is_empty();
        peer.is_none_or(|peer| is_local(peer.to_canonical()) || by_certificate)
    }

    fn has_client_ca(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    fn mistakes(&self, is_http: bool) -> Vec<String> {
        let mut all = Vec::new();
        match (self.style, is_http) {
            (Some(_), false) => all.push("take style out: it is for [[http]]".to_owned()),
            (None, true) => all.push("say how the proxy describes a request: style = \"nginx\", \"forwarded\" or \"envoy\"".to_owned()),
            _ => {}
        }
        let listen = self.listen.as_ref();
        if matches!(listen, Listen::Unix(_)) {
            if !self.allow.is_empty() || self.tls.is_some() {
                all.push("peers on a Unix socket have no address; take allow and tls out, and mind who may open it".to_owned());
            }
        } else if !listen.is_loopback() && self.allow.is_empty() && !self.has_client_ca() {
            all.push(format!(
                "whoever reaches {listen} could use up the limits of clients; add allow = [\"10.0.0.0/8\"] with the networks of your \
                 proxies, or tls = {{ cert, key, client_ca }}"
            ));
        }
        if let Some(all_addresses) = self.allow.iter().find(|network| network.prefix_len() == 0) {
            all.push(format!(
                "allow = [\"{all_addresses}\"] is everybody; name the networks of your proxies"
            ));
        }
        let has_san = self.tls.as_ref().is_some_and(|tls| !tls.san.is_empty());
        if has_san && !self.has_client_ca() {
            all.push("san says which certificates of clients are good; add client_ca, with the authority that they come from".to_owned());
        }
        if !(1..=86_400).contains(&self.max_connection_age_seconds.unwrap_or(300)) {
            all.push("max_connection_age_seconds is 1 to 86400; 300 is usual".to_owned());
        }
        all
    }
}

impl LedgerSettings {
    /// Where it is, which may have a password.
    pub(crate) fn url(&self) -> Result<String, Mistakes> {
        self.url
            .clone()
            .or_else(|| std::env::var("DATABASE_URL").ok())
            .ok_or_else(|| {
                Mistakes::one(
                    "[ledger] has no url; add url = \"sqlite:ledger.db\", or set DATABASE_URL",
                )
            })
    }
}

impl RedisSettings {
    /// How long an answer may take.
    pub(crate) fn deadline(&self) -> Duration {
        let deadline = self.deadline_ms.as_ref();
        deadline.map_or(MAX_WAIT, |it| Duration::from_millis(*it.as_ref()))
    }

    /// The address, which may have a password.
    pub(crate) fn address(&self) -> Result<String, Mistakes> {
        self.address.clone().or_else(|| std::env::var("REDIS_URL").ok()).ok_or_else(|| {
            Mistakes::one("[redis] has no address; add address = \"redis://127.0.0.1:6379\", or set REDIS_URL")
        })
    }

    /// Whether there has to be a secret.
    pub(crate) fn needs_secret(&self) -> bool {
        self.rules || !self.plain_keys || self.secret_file.is_some()
    }

    /// The secret of the services that share this Redis.
    pub(crate) fn secret(&self) -> Result<Secret, Mistakes> {
        let Some(file) = &self.secret_file else {
            return Secret::from_env(SECRET).map_err(Mistakes::one);
        };
        let wrong =
            |why: &dyn Display| Mistakes::one(format!("secret_file {}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|why| wrong(&why))?;
        Secret::from_text(&text).map_err(|why| wrong(&why))
    }

    /// How the services write their clients there.
    pub(crate) fn keys(&self) -> Result<Keys, Mistakes> {
        match self.plain_keys {
            true => Ok(Keys::plain()),
            false => Ok(Keys::hashed(self.secret()?)),
        }
    }
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let networks = texts
        .iter()
        .map(|text| network(text).map_err(D::Error::custom));
    networks.collect()
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let never = |name: &String| name.trim().is_empty() || name.parse::<IpAddr>().is_ok();
    match names.is_empty() || names.iter().any(never) {
        false => Ok(names),
        true => Err(D::Error::custom(
            "san is a list of names of hosts or URIs, such as [\"envoy.example.org\"], and not of addresses; without it, each \
             certificate of client_ca is good",
        )),
    }
}

fn drain() -> Spanned<u64> {
    Spanned::new(0..0, 5)
}

fn draft_11() -> HeaderStyle {
    HeaderStyle::DRAFT_11
}

fn header_style<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderStyle, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(match &*text {
        "none" => HeaderStyle::NONE,
        "draft-11" => HeaderStyle::DRAFT_11,
        "draft-7" => HeaderStyle::DRAFT_7,
        "draft-6" => HeaderStyle::DRAFT_6,
        "x-ratelimit-epoch" => HeaderStyle::X_RATELIMIT_EPOCH,
        "x-ratelimit-delta" => HeaderStyle::X_RATELIMIT_DELTA,
        _ => {
            return Err(D::Error::custom(format!(
                "there are no header fields {text:?}; take \"draft-11\", \"draft-7\", \"draft-6\", \"x-ratelimit-epoch\", \
                 \"x-ratelimit-delta\" or \"none\""
            )));
        }
    })
}

fn partition<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Partition>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(D::Error::custom)
}
