//! Counting by address.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{HeaderName, header, request::Parts};
use ipnet::IpNet;
use tollgate_core::{KeyBuf, KeyPart, Network, PartKind, RuleError, RuleErrorKind};

use crate::{
    diagnostics,
    key::{
        client_ip::{
            forwarded, single_header,
            trust::{MAX_ENTRIES, Trust, network},
            x_forwarded_for::{self, X_FORWARDED_FOR},
        },
        extractor::{Extracted, KeyExtractor, NoKey},
        header::header_name,
        peer::peer,
    },
};

/// Counts by the address of the client: the peer of the socket, unless told otherwise.
///
/// Behind a proxy the peer is the proxy, and all clients are one. Then say what the proxy writes
/// ([`x_forwarded_for`](ClientIp::x_forwarded_for), [`forwarded`](ClientIp::forwarded) or
/// [`single_header`](ClientIp::single_header), exactly one of them) and whose word counts
/// ([`trusted_proxies`](ClientIp::trusted_proxies) or [`hops`](ClientIp::hops)). One without the other is refused when the
/// rule is built, because a header that anybody may write is not an address.
///
/// IPv4 addresses count whole, IPv6 addresses by their /64. IPv4-mapped IPv6 addresses are IPv4 addresses. The key has one
/// part of [`PartKind::ADDRESS`]: family, prefix length, network. With the prefixes that it has by default it equals
/// [`Key::of(address)`](tollgate_core::Key::of), with others `Key::of` a [`Network`] with the same ones.
///
/// Without a peer address there is no key ([`NoKey::Misconfigured`]): see [`PeerAddr`](crate::key::PeerAddr).
pub fn client_ip() -> ClientIp {
    ClientIp {
        source: Source::Peer,
        trust: Trust::Nobody,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
        mistake: None,
        distrusted: Arc::default(),
    }
}

/// The extractor that [`client_ip`] makes, and its settings.
///
/// A mistake in the settings is reported when a rule is built with it (by [`KeyExtractor::validate`]); the first one counts.
#[derive(Clone, Debug)]
#[must_use = "an extractor does nothing until a rule counts by it"]
pub struct ClientIp {
    source: Source,
    trust: Trust,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    mistake: Option<String>,
    /// Whether it was told that somebody sends the header who is not trusted.
    distrusted: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum Source {
    Peer,
    XForwardedFor,
    Forwarded,
    SingleHeader(HeaderName),
}

impl ClientIp {
    /// Counts IPv4 addresses by their first `bits` bits, 1 to 32. The default is 32.
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        match bits {
            1..=32 => self.ipv4_prefix = bits,
            _ => self.note(format!("an IPv4 prefix has 1 to 32 bits, not {bits}")),
        }
        self
    }

    /// Counts IPv6 addresses by their first `bits` bits, 1 to 128. The default is 64.
    ///
    /// One host has a /64 for itself, so more bits let it have any number of budgets.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        match bits {
            1..=128 => self.ipv6_prefix = bits,
            _ => self.note(format!("an IPv6 prefix has 1 to 128 bits, not {bits}")),
        }
        self
    }

    /// Believes proxies with these addresses: CIDRs or single addresses, as text, [`IpNet`](ipnet::IpNet) or [`IpAddr`].
    ///
    /// Nothing is trusted by itself, private networks and the loopback neither. A second call adds to the first. All
    /// addresses together (`0.0.0.0/0`) are refused, because every client could then choose its own; so is an address with a
    /// prefix that does not begin its network (`10.0.0.5/8`).
    ///
    /// The first request with the header from a peer that is not trusted is told in an event at warn level, with the peer's
    /// address: where that is your proxy, all its clients are one.
    pub fn trusted_proxies<P: ToString>(mut self, proxies: impl IntoIterator<Item = P>) -> Self {
        let mut networks = match std::mem::replace(&mut self.trust, Trust::Nobody) {
            Trust::Nobody => Vec::new(),
            Trust::Proxies(networks) => networks,
            Trust::Hops(_) => {
                self.note(TWO_TRUSTS.to_owned());
                return self;
            }
        };
        for proxy in proxies {
            match network(&proxy.to_string()) {
                Ok(network) => networks.push(network),
                Err(mistake) => self.note(mistake),
            }
        }
        if !networks.is_empty() {
            self.trust = Trust::Proxies(networks);
        }
        self
    }

    /// Believes `proxies` proxies in a row, the peer included, whatever their addresses: the client is the entry that the
    /// outermost of them has appended, the last but `proxies - 1`. 1 to 64.
    ///
    /// This is for load balancers whose addresses change. It is safe only if nobody reaches the service except through that
    /// many proxies: who comes by a shorter way writes his own address. A list with fewer entries gives the peer, and so
    /// does an entry that is no address.
    pub fn hops(mut self, proxies: usize) -> Self {
        if !(1..=MAX_ENTRIES).contains(&proxies) {
            self.note(format!(
                "hops({proxies}) is out of range: count the proxies in front of the service, 1 to {MAX_ENTRIES}"
            ));
        } else if matches!(self.trust, Trust::Proxies(_)) {
            self.note(TWO_TRUSTS.to_owned());
        } else {
            self.trust = Trust::Hops(proxies);
        }
        self
    }

    /// Reads `X-Forwarded-For`.
    ///
    /// All its lines are one list, read from the right: the client is the first address that is not a trusted proxy. An
    /// entry that is no address (a name, `unknown`, a zone id) ends the walk with the proxy to its right. If all are
    /// trusted, the leftmost counts. Entries may have a port, IPv6 addresses may have brackets.
    ///
    /// At most 64 entries of at most 128 bytes are read, whatever was sent.
    pub fn x_forwarded_for(self) -> Self {
        self.read(Source::XForwardedFor)
    }

    /// Reads the `for` parameters of `Forwarded`, RFC 7239, in the same way.
    ///
    /// A line that breaks the grammar gives the peer: a client can spoil the line that its proxy completes, but it cannot
    /// choose the address that comes out. At most 64 elements and 8 KiB are read; a longer line counts as broken.
    pub fn forwarded(self) -> Self {
        self.read(Source::Forwarded)
    }

    /// Reads a header with one address, such as `CF-Connecting-IP`, if the peer is a trusted proxy.
    ///
    /// The header must be there once, without a comma: an address, or `192.0.2.1:443`, or `[2001:db8::1]:443`. Otherwise the
    /// peer counts. It needs [`trusted_proxies`](Self::trusted_proxies); [`hops`](Self::hops) says nothing here.
    ///
    /// `CloudFront-Viewer-Address` has a port behind IPv6 addresses without brackets. What is address and what is port cannot
    /// be told apart, so take `X-Forwarded-For` with CloudFront.
    pub fn single_header(mut self, name: impl AsRef<str>) -> Self {
        match header_name(name.as_ref()) {
            Ok(name) => self.read(Source::SingleHeader(name)),
            Err(mistake) => {
                self.note(mistake);
                self
            }
        }
    }

    /// The client's address, whole: what to log so that the log agrees with the limit.
    ///
    /// # Errors
    ///
    /// [`NoKey::Misconfigured`] if the request has no peer address; the text names the call to add.
    pub fn resolve(&self, head: &Parts) -> Result<IpAddr, NoKey> {
        let peer = peer(head)?;
        let headers = &head.headers;
        if !self.trust.believes(peer) {
            self.distrust(peer, head);
            return Ok(peer);
        }
        Ok(match &self.source {
            Source::Peer => peer,
            Source::XForwardedFor => self.trust.client(peer, x_forwarded_for::entries(headers)),
            Source::Forwarded => self.trust.client(peer, forwarded::entries(headers)),
            Source::SingleHeader(name) => single_header::read(headers, name).unwrap_or(peer),
        })
    }

    /// The condition that the client's address, found in this way, is in one of these networks: CIDRs or single addresses,
    /// as in [`trusted_proxies`](Self::trusted_proxies). For [`RequestRule::when`](crate::RequestRule::when) and
    /// [`exempt`](crate::RequestRule::exempt); where the peer is the client,
    /// [`condition::client_in`](crate::condition::client_in) is shorter.
    ///
    /// It does not hold for a request without a peer address; the first one is told in an event at error level, because a
    /// rule with `when` would limit nobody.
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota, Rule, key::{client_ip, header}};
    ///
    /// let client = client_ip().trusted_proxies(["10.0.0.0/8"]).x_forwarded_for();
    /// let rule = Rule::new("per-key", Quota::gcra(60, MINUTE))
    ///     .by(header("x-api-key"))
    ///     // The monitoring.
    ///     .exempt(client.is_in(["192.0.2.0/28", "2001:db8:7::/48"])?);
    /// # let _ = rule;
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A text that is not a network, no network at all, or a mistake in the settings of this extractor.
    pub fn is_in<N: ToString>(
        self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<impl Fn(&Parts) -> bool + Send + Sync + 'static, RuleError> {
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
        let told = AtomicBool::new(false);
        Ok(move |head: &Parts| match self.resolve(head) {
            Ok(client) => networks.iter().any(|network| network.contains(&client)),
            Err(why) => {
                // Once: every request would say the same.
                if !told.swap(true, Ordering::Relaxed) {
                    diagnostics::error(&format!(
                        "a condition on the client's network does not hold: {why}"
                    ));
                }
                false
            }
        })
    }

    /// Tells once of a peer that sends the header and is not trusted: a client that makes it up, or a proxy that nobody has
    /// named.
    #[inline]
    fn distrust(&self, peer: IpAddr, head: &Parts) {
        let name = match &self.source {
            Source::Peer => return,
            Source::XForwardedFor => &X_FORWARDED_FOR,
            Source::Forwarded => &header::FORWARDED,
            Source::SingleHeader(name) => name,
        };
        if !self.distrusted.load(Ordering::Relaxed)
            && head.headers.contains_key(name)
            && !self.distrusted.swap(true, Ordering::Relaxed)
        {
            diagnostics::warn(&format!(
                "{peer} sends {name} and is not trusted; if it is a proxy of yours, name it in trusted_proxies(..): until then \
                 all its clients are one"
            ));
        }
    }

    fn read(mut self, source: Source) -> Self {
        if matches!(self.source, Source::Peer) {
            self.source = source;
        } else {
            self.note(
                "client_ip() reads one header: take one of x_forwarded_for(), forwarded() and single_header(..), or a \
                 client chooses which of them counts"
                    .to_owned(),
            );
        }
        self
    }

    fn note(&mut self, mistake: String) {
        self.mistake.get_or_insert(mistake);
    }
}

const TWO_TRUSTS: &str = "client_ip() takes trusted_proxies(..) or hops(..), not both";

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        match self.resolve(head) {
            Ok(address) => {
                Network::of(address)
                    .ipv4_prefix(self.ipv4_prefix)
                    .ipv6_prefix(self.ipv6_prefix)
                    .add_to(key, PartKind::ADDRESS);
                Extracted::Key
            }
            Err(why) => Extracted::Nothing(why),
        }
    }

    fn validate(&self) -> Result<(), String> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        let mistake = match (&self.source, &self.trust) {
            (Source::Peer, Trust::Nobody)
            | (Source::XForwardedFor | Source::Forwarded, Trust::Proxies(_) | Trust::Hops(_))
            | (Source::SingleHeader(_), Trust::Proxies(_)) => return self.trust.validate(),
            (Source::Peer, _) => {
                "client_ip() is told which proxies to trust, but reads no header: add x_forwarded_for(), forwarded() or \
                 single_header(..)"
            }
            (Source::XForwardedFor | Source::Forwarded, Trust::Nobody) => {
                "client_ip() reads a header that any client may write: add trusted_proxies(..) with the addresses of \
                 your proxies, or hops(..) with their number"
            }
            (Source::SingleHeader(_), _) => {
                "client_ip() reads a header that any client may write: add trusted_proxies(..) with the addresses of \
                 your proxies; hops(..) says nothing about a single header"
            }
        };
        Err(mistake.to_owned())
    }
}
