//! The client's address as the key.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use http::{HeaderName, header};
use ipnet::IpNet;
use tollgate_core::{KeyBuf, KeyPart, Network, PartKind, RuleError, RuleErrorKind};

use crate::{
    diagnostics,
    head::Head,
    key::{
        extractor::{Extracted, KeyExtractor, NoKey},
        fields::header_name,
        forwarded,
        peer::{no_peer, peer, with_peer},
        trust::{
            Entry, MAX_ENTRIES, TrustedPeers, X_FORWARDED_FOR, hop, network, only_address,
            x_forwarded_for,
        },
    },
    known_condition::Condition,
};

/// Counts by the address of the client. Default: the peer of the socket.
///
/// Behind a proxy the peer is the proxy, and all clients share one budget. Then set the header that the proxy writes
/// ([`x_forwarded_for`](ClientIp::x_forwarded_for), [`forwarded`](ClientIp::forwarded) or
/// [`single_header`](ClientIp::single_header), exactly one of them) and which proxies are trusted
/// ([`trusted_proxies`](ClientIp::trusted_proxies) or [`hops`](ClientIp::hops)). One without the other is an error when the rule
/// is built, because clients can send the header too.
///
/// IPv4 addresses count whole, IPv6 addresses by their /64. IPv4-mapped IPv6 addresses are IPv4 addresses. The key has one
/// part of [`PartKind::ADDRESS`]: family, prefix length, network. With the default prefixes it equals
/// [`Key::of(address)`](tollgate_core::Key::of), with others `Key::of` a [`Network`] with the same prefixes.
///
/// The first request with `X-Forwarded-For` or `Forwarded` from a peer that is not trusted is an event at warn level. Where no proxy is
/// configured, that is once in a process, and fields are looked at in the first 1 000 requests.
///
/// Without a peer address there is no key ([`NoKey::Misconfigured`]): see [`PeerAddr`](crate::key::PeerAddr).
pub fn client_ip() -> ClientIp {
    ClientIp {
        source: Source::Peer,
        proxies: TrustedPeers::default(),
        hops: None,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
        mistake: None,
        reported: Arc::default(),
    }
}

/// The extractor that [`client_ip`] makes, and its settings.
///
/// The first mistake in the settings is an error when a rule is built, by [`KeyExtractor::validate`].
#[derive(Clone, Debug)]
#[must_use = "an extractor does nothing until a rule counts by it"]
pub struct ClientIp {
    source: Source,
    proxies: TrustedPeers,
    hops: Option<usize>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    mistake: Option<String>,
    /// Whether an untrusted peer was reported, where a header is read. Clones share it.
    reported: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum Source {
    Peer,
    XForwardedFor,
    Forwarded,
    SingleHeader(HeaderName),
}

impl ClientIp {
    /// Counts IPv4 addresses by their first `bits` bits, 1 to 32. Default: 32.
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        match bits {
            1..=32 => self.ipv4_prefix = bits,
            _ => self.record_mistake(format!("an IPv4 prefix has 1 to 32 bits, not {bits}")),
        }
        self
    }

    /// Counts IPv6 addresses by their first `bits` bits, 1 to 128. Default: 64.
    ///
    /// One host has a whole /64, so with more bits it has any number of budgets.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        match bits {
            1..=128 => self.ipv6_prefix = bits,
            _ => self.record_mistake(format!("an IPv6 prefix has 1 to 128 bits, not {bits}")),
        }
        self
    }

    /// Trusts proxies with these addresses: CIDRs or single addresses, as text, [`IpNet`](ipnet::IpNet) or [`IpAddr`].
    ///
    /// Nothing is trusted by default, not even private networks and the loopback. A second call adds to the first. All
    /// addresses (`0.0.0.0/0`) are an error, because every client could choose its own address; so is a CIDR with host bits
    /// (`10.0.0.5/8`).
    ///
    /// `"unix:"` trusts the proxy on a Unix socket, as `set_real_ip_from unix:` of nginx does: a request without a peer address then
    /// has come from a proxy. Set it only if the service listens on no other socket whose peers are unknown.
    ///
    /// ```
    /// use tollgate::key::client_ip;
    ///
    /// let behind_nginx = client_ip().trusted_proxies(["unix:"]).x_forwarded_for();
    /// let (head, ()) = http::Request::builder().header("x-forwarded-for", "192.0.2.1").body(()).unwrap().into_parts();
    /// assert_eq!(behind_nginx.resolve(&head).unwrap().to_string(), "192.0.2.1");
    /// ```
    ///
    /// The first request with the header, with `X-Forwarded-For` or with `Forwarded` from an untrusted peer is an event at warn level
    /// with the peer's address: if that is your proxy, all its clients share one budget.
    pub fn trusted_proxies<P: ToString>(mut self, proxies: impl IntoIterator<Item = P>) -> Self {
        for proxy in proxies {
            if let Err(mistake) = self.proxies.add(&proxy.to_string()) {
                self.record_mistake(mistake);
            }
        }
        self
    }

    /// Trusts a chain of `proxies` proxies, the peer included, whatever their addresses: the client is the entry that the
    /// outermost of them has appended, at index `proxies - 1` from the right. 1 to 64.
    ///
    /// Use it for load balancers whose addresses change. It is safe only if the service is reachable only through that many
    /// proxies: with fewer, a client chooses its address. If the list is shorter, or the entry is not an address, the peer
    /// counts. A last proxy on a Unix socket has to be
    /// [trusted](Self::trusted_proxies) as well, with `trusted_proxies(["unix:"])`: it has no address that could count.
    pub fn hops(mut self, proxies: usize) -> Self {
        if !(1..=MAX_ENTRIES).contains(&proxies) {
            self.record_mistake(format!(
                "hops({proxies}) is out of range: count the proxies in front of the service, 1 to {MAX_ENTRIES}"
            ));
        } else {
            self.hops = Some(proxies);
        }
        self
    }

    /// Reads `X-Forwarded-For`.
    ///
    /// All its lines form one list, which is read from the right: the client is the first address that is not a trusted proxy. An
    /// entry that is not an address (a name, `unknown`, a zone id) stops the walk at the proxy to its right. If all are trusted,
    /// the leftmost counts. Entries may have a port, IPv6 addresses may have brackets.
    ///
    /// At most 64 entries are read. If one of them has more than 128 bytes, the peer counts.
    pub fn x_forwarded_for(self) -> Self {
        self.read(Source::XForwardedFor)
    }

    /// Reads the `for` parameters of `Forwarded`, RFC 7239, in the same way.
    ///
    /// If a line is malformed, the peer counts: a client can corrupt the line that its proxy completes, but cannot choose the
    /// resulting address. At most 64 elements and 8 KiB are read; a longer line counts as malformed.
    pub fn forwarded(self) -> Self {
        self.read(Source::Forwarded)
    }

    /// Reads a header with one address, such as `CF-Connecting-IP`, if the peer is a trusted proxy.
    ///
    /// The header must be there once, without a comma: an address, or `192.0.2.1:443`, or `[2001:db8::1]:443`. Otherwise the
    /// peer counts. It needs [`trusted_proxies`](Self::trusted_proxies); [`hops`](Self::hops) has no effect here.
    ///
    /// `CloudFront-Viewer-Address` has a port after IPv6 addresses without brackets, which is ambiguous: use `X-Forwarded-For`
    /// with CloudFront.
    pub fn single_header(mut self, name: impl AsRef<str>) -> Self {
        match header_name(name.as_ref()) {
            Ok(name) => self.read(Source::SingleHeader(name)),
            Err(mistake) => {
                self.record_mistake(mistake);
                self
            }
        }
    }

    /// The client as a rule counts it: its network, of which `Key::of` makes the rule's key. A list of blocked clients that holds these
    /// blocks what a limit would have denied, where one of addresses lets a client go on with the next address of its /64.
    ///
    /// ```
    /// use tollgate::{Key, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::{PeerAddr, client_ip}};
    ///
    /// let client = client_ip().ipv6_prefix(56);
    /// let rule = Rule::new("per-ip", Quota::gcra(60, MINUTE)).by(client.clone());
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// let peer = PeerAddr("[2001:db8:1:2::3]:40000".parse()?);
    /// let head = http::Request::builder().extension(peer).body(())?.into_parts().0;
    /// let network = client.resolve(&head)?;
    /// assert_eq!(network.to_string(), "2001:db8:1::/56");
    /// assert_eq!(Some(Key::of(network)), layer.key_of("per-ip", &head));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`address`](Self::address).
    pub fn resolve<'a>(&self, head: impl Into<Head<'a>>) -> Result<Network, NoKey> {
        self.address(head).map(|address| self.network(address))
    }

    /// The client's full address, for logs that agree with the limit.
    ///
    /// # Errors
    ///
    /// [`NoKey::Misconfigured`] if the request has no peer address, and no trusted proxy names the client; the text says what to add.
    pub fn address<'a>(&self, head: impl Into<Head<'a>>) -> Result<IpAddr, NoKey> {
        let head = &head.into();
        let (peer, headers) = (peer(head), head.headers);
        match peer {
            Some(address) if self.hops.is_none() && !self.proxies.trust(peer) => {
                if !matches!(self.source, Source::Peer) {
                    self.report_untrusted(head);
                }
                return Ok(address);
            }
            None if !self.proxies.socket => return Err(no_peer()),
            _ => {}
        }
        let client = match &self.source {
            Source::Peer => peer,
            Source::XForwardedFor => self.client(peer, x_forwarded_for(headers)),
            Source::Forwarded => self.client(peer, forwarded::entries(headers)),
            Source::SingleHeader(name) => only_address(headers, name).or(peer),
        };
        client.ok_or_else(no_peer)
    }

    fn client(&self, peer: Option<IpAddr>, entries: impl Iterator<Item = Entry>) -> Option<IpAddr> {
        match self.hops {
            Some(hops) => hop(hops, entries).or(peer),
            None => self.proxies.first_untrusted(peer, entries),
        }
    }

    fn network(&self, address: IpAddr) -> Network {
        Network::of(address)
            .ipv4_prefix(self.ipv4_prefix)
            .ipv6_prefix(self.ipv6_prefix)
    }

    /// The condition that the client's address, found in this way, is in one of these networks: CIDRs or single addresses,
    /// as in [`trusted_proxies`](Self::trusted_proxies). For [`RequestRule::when`](crate::RequestRule::when) and
    /// [`exempt`](crate::RequestRule::exempt); where the peer is the client,
    /// [`condition::client_in`](crate::condition::client_in) is shorter.
    ///
    /// It is `false` for a request without a peer address; the first one is an event at error level, because a rule with `when`
    /// would limit no request.
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota, Rule, key::{client_ip, header}};
    ///
    /// let client = client_ip().trusted_proxies(["10.0.0.0/8"]).x_forwarded_for();
    /// let monitoring = client.clone().is_in(["192.0.2.0/28", "2001:db8:7::/48"])?;
    /// let per_key = Rule::new("per-key", Quota::gcra(60, MINUTE)).by(header("x-api-key"));
    /// let per_ip = Rule::new("per-ip", Quota::gcra(60, MINUTE)).by(client);
    /// let rules = [per_key.exempt(monitoring.clone()), per_ip.exempt(monitoring)];
    /// # let _ = rules;
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A text that is not a network, no network at all, or a mistake in the settings of this extractor.
    pub fn is_in<N: ToString>(
        self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<impl Condition + Clone, RuleError> {
        let wrong = |mistake: String| RuleError::general(RuleErrorKind::Key, mistake);
        self.validate().map_err(wrong)?;
        let networks: Vec<IpNet> = networks
            .into_iter()
            .map(|text| network(&text.to_string()))
            .collect::<Result<_, _>>()
            .map_err(wrong)?;
        if networks.is_empty() {
            return Err(wrong(
                "a condition on no network never holds; name at least one, as in client_in([\"192.0.2.0/24\"])".to_owned(),
            ));
        }
        let reported = Arc::new(AtomicBool::new(false));
        Ok(move |head: &Head<'_>| match self.address(head) {
            Ok(client) => networks.iter().any(|network| network.contains(&client)),
            Err(why) => {
                // Once.
                if !reported.swap(true, Ordering::Relaxed) {
                    diagnostics::error(&format!(
                        "a condition on the client's network does not hold: {why}"
                    ));
                }
                false
            }
        })
    }

    /// Reports once that an untrusted peer sends what a proxy sends: a client that invents it, or a proxy that is not configured.
    fn report_untrusted(&self, head: &Head<'_>) {
        let reported = match self.source {
            Source::Peer => &REPORTED,
            _ => &*self.reported,
        };
        if reported.load(Ordering::Relaxed) {
            return;
        }
        let own = match &self.source {
            Source::SingleHeader(name) => name.clone(),
            _ => X_FORWARDED_FOR,
        };
        let mut names = [X_FORWARDED_FOR, header::FORWARDED, own].into_iter();
        let Some(name) = names.find(|name| head.headers.contains_key(name)) else {
            return;
        };
        if reported.swap(true, Ordering::Relaxed) {
            return;
        }
        let peer = with_peer(head, |peer| peer.ip().to_canonical().to_string());
        diagnostics::warn(&format!(
            "{} sends {name} and is not trusted; if it is a proxy of yours, all its clients are one: name it with \
             client_ip().trusted_proxies(..).x_forwarded_for(), or with a table client_ip in a file",
            peer.as_deref().unwrap_or("a peer")
        ));
    }

    fn read(mut self, source: Source) -> Self {
        if matches!(self.source, Source::Peer) {
            self.source = source;
        } else {
            self.record_mistake(
                "client_ip() reads one header: take one of x_forwarded_for(), forwarded() and single_header(..), or a \
                 client chooses which of them counts"
                    .to_owned(),
            );
        }
        self
    }

    fn record_mistake(&mut self, mistake: String) {
        self.mistake.get_or_insert(mistake);
    }
}

/// How many requests are still looked at for a proxy where none is configured: one in front of a service shows in the first.
static LOOKS_LEFT: AtomicU32 = AtomicU32::new(1_000);

/// Whether one was found so.
static REPORTED: AtomicBool = AtomicBool::new(false);

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        if matches!(self.source, Source::Peer) {
            let left = LOOKS_LEFT.load(Ordering::Relaxed);
            // Documents read the keys of overrides from heads without fields, which no proxy sends.
            if left > 0 && !head.headers.is_empty() {
                // Threads may count one request for two.
                LOOKS_LEFT.store(left - 1, Ordering::Relaxed);
                self.report_untrusted(head);
            }
            let add = |peer: &SocketAddr| self.network(peer.ip()).add_to(key, PartKind::ADDRESS);
            return match with_peer(head, add) {
                Some(()) => Extracted::Key,
                None => Extracted::Nothing(no_peer()),
            };
        }
        match self.resolve(head) {
            Ok(network) => {
                network.add_to(key, PartKind::ADDRESS);
                Extracted::Key
            }
            Err(why) => Extracted::Nothing(why),
        }
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "ip".into()
    }

    fn client_address(&self, head: &Head<'_>) -> Option<Result<IpAddr, NoKey>> {
        Some(self.address(head))
    }

    fn validate(&self) -> Result<(), String> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.hops.is_some() && !self.proxies.networks.is_empty() {
            return Err("client_ip() takes trusted_proxies(..) or hops(..), not both".to_owned());
        }
        if let Some(everybody) = self.proxies.everybody() {
            return Err(format!(
                "trusted_proxies(..) covers {everybody}, which is every client: each could choose its own address; name the \
                 networks of your proxies, \"10.0.0.0/8\" say, or take hops(..) with the number of proxies if clients cannot get \
                 past them"
            ));
        }
        let trusts_proxies = !self.proxies.is_empty();
        let mistake = match &self.source {
            Source::Peer if trusts_proxies || self.hops.is_some() => {
                "client_ip() has trusted proxies, but reads no header: add x_forwarded_for(), forwarded() or \
                 single_header(..)"
            }
            Source::XForwardedFor | Source::Forwarded if !trusts_proxies && self.hops.is_none() => {
                "client_ip() reads a header that any client may write: add trusted_proxies(..) with the addresses of \
                 your proxies, or hops(..) with their number"
            }
            Source::SingleHeader(_) if !trusts_proxies || self.hops.is_some() => {
                "client_ip() reads a header that any client may write: add trusted_proxies(..) with the addresses of \
                 your proxies; hops(..) says nothing about a single header"
            }
            _ => return Ok(()),
        };
        Err(mistake.to_owned())
    }
}
