//! Hostile input, made by mutation from a fixed seed.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};
use tollgate::key::{ClientIp, KeyExtractor, NoKey, client_ip, cookie, query};

use crate::support::{empty, from, key, with_lines};

const PEER: &str = "10.0.0.1";
const ROUNDS: usize = 50_000;
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).expect("31 bits") % sides
    }

    fn pick<'a>(&mut self, from: &[&'a [u8]]) -> &'a [u8] {
        from[self.roll(from.len())]
    }

    /// A line of some seeds, with some bytes changed, cut or doubled.
    fn line(&mut self, seeds: &[&[u8]]) -> Vec<u8> {
        let mut line = Vec::new();
        for _ in 0..self.roll(5) {
            line.extend_from_slice(self.pick(seeds));
        }
        for _ in 0..self.roll(5).saturating_sub(2) {
            let at = self.roll(line.len() + 1);
            match self.roll(5) {
                0 => line.truncate(at),
                1 => line.extend_from_within(at..),
                2 if at < line.len() => drop(line.remove(at)),
                3 if at < line.len() => line[at] = self.byte(),
                _ => line.insert(at, self.byte()),
            }
        }
        line
    }

    /// A byte that a header may hold; mostly one that means something.
    fn byte(&mut self) -> u8 {
        const TELLING: &[u8] = b"\",;=:[]\\% \t+&_.0f1\xff";
        match self.roll(4) {
            0 => u8::try_from(32 + self.roll(95)).expect("below 127"),
            _ => TELLING[self.roll(TELLING.len())],
        }
    }
}

const ADDRESSES: &[&[u8]] = &[
    b"6.6.6.6",
    b"10.0.0.2",
    b"10.0.0.3:80",
    b"2001:db8::6",
    b"[2001:db8::6]:443",
    b"\"[2001:db8::6]\"",
    b"::ffff:10.0.0.4",
    b"unknown",
    b", ",
    b", ",
    b",",
    b", 10.0.0.2",
];

const ELEMENTS: &[&[u8]] = &[
    b"for=6.6.6.6",
    b"for=10.0.0.2",
    b"For=\"[2001:db8::6]:80\"",
    b"for=\"6.6.6.6:_x\"",
    b"for=unknown",
    b";proto=https",
    b";by=\"a, b; c\"",
    b";ext=\"\\\"",
    b";",
    b", ",
    b", ",
    b",",
    b", for=10.0.0.2",
];

fn lines(dice: &mut Dice, head: &mut Parts, name: &HeaderName, seeds: &[&[u8]]) {
    head.headers.remove(name);
    for _ in 0..dice.roll(4) {
        let line = dice.line(seeds);
        if let Ok(value) = HeaderValue::from_bytes(&line) {
            head.headers.append(name, value);
        }
    }
}

/// Every address that can be read in the header, with or without what stands around it.
fn appears(headers: &HeaderMap, name: &HeaderName, address: IpAddr) -> bool {
    let text: Vec<u8> = headers
        .get_all(name)
        .iter()
        .flat_map(|v| [v.as_bytes(), b"\n"].concat())
        .collect();
    let text = String::from_utf8_lossy(&text);
    let is_inside = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    let readable = |text: &str| {
        text.parse::<IpAddr>()
            .is_ok_and(|found| found.to_canonical() == address)
    };
    text.split(|c| !is_inside(c))
        .any(|run| readable(run) || run.rsplit_once(':').is_some_and(|(run, _)| readable(run)))
}

fn the_answer_is_the_peer_or_in_the_header(client: &ClientIp, name: &HeaderName, seeds: &[&[u8]]) {
    client.validate().expect("the settings are right");
    let peer: IpAddr = PEER.parse().expect("an address");
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut head = from(PEER, empty());
    let mut others = 0;
    for _ in 0..ROUNDS {
        lines(&mut dice, &mut head, name, seeds);
        let found = client.resolve(&head).expect("there is a peer");
        if found != peer {
            others += 1;
            assert!(
                appears(&head.headers, name, found),
                "{found} from {:?}",
                head.headers
            );
        }
        let key = key(client, &head).expect("there is a peer");
        assert!(key.len() <= 9 + 18);
    }
    assert!(others > ROUNDS / 100, "the seeds are worthless: {others}");
}

#[test]
fn x_forwarded_for_gives_the_peer_or_an_address_of_the_header() {
    let walk = client_ip()
        .trusted_proxies(["10.0.0.0/8"])
        .x_forwarded_for();
    the_answer_is_the_peer_or_in_the_header(&walk, &X_FORWARDED_FOR, ADDRESSES);
    the_answer_is_the_peer_or_in_the_header(
        &client_ip().x_forwarded_for().hops(2),
        &X_FORWARDED_FOR,
        ADDRESSES,
    );
}

#[test]
fn forwarded_gives_the_peer_or_an_address_of_the_header() {
    let walk = client_ip().trusted_proxies(["10.0.0.0/8"]).forwarded();
    the_answer_is_the_peer_or_in_the_header(&walk, &header::FORWARDED, ELEMENTS);
    the_answer_is_the_peer_or_in_the_header(
        &client_ip().forwarded().hops(2),
        &header::FORWARDED,
        ELEMENTS,
    );
}

#[test]
fn a_single_header_gives_the_peer_or_its_address() {
    let client = client_ip()
        .trusted_proxies([PEER])
        .single_header("x-forwarded-for");
    the_answer_is_the_peer_or_in_the_header(&client, &X_FORWARDED_FOR, ADDRESSES);
}

/// The key is never longer than what was sent, with the name and two heads of nine bytes.
fn bounded(found: &Result<tollgate::KeyBuf, NoKey>, name: &str, sent: usize) {
    match found {
        Ok(key) => assert!(key.len() <= sent + name.len() + 18),
        Err(why) => assert!(matches!(why, NoKey::Absent | NoKey::Ambiguous)),
    }
}

#[test]
fn cookies_give_a_bounded_key() {
    const SEEDS: &[&[u8]] = &[
        b"session=",
        b"abc",
        b"; ",
        b"a=1;",
        b"\"",
        b"%73ession=",
        b"%",
        b"%6",
        b"session",
    ];
    let mut dice = Dice(7);
    let mut head = empty();
    let mut keys = 0;
    for _ in 0..ROUNDS {
        lines(&mut dice, &mut head, &header::COOKIE, SEEDS);
        let sent = head.headers.values().map(HeaderValue::len).sum();
        let found = key(&cookie("session"), &head);
        keys += usize::from(found.is_ok());
        bounded(&found, "session", sent);
    }
    assert!(keys > ROUNDS / 50, "the seeds are worthless: {keys}");
}

#[test]
fn queries_give_a_bounded_key() {
    const SEEDS: &[&[u8]] = &[
        b"q=", b"abc", b"&", b"a=1&", b"%71=", b"+", b"%", b"%6", b"q",
    ];
    let mut dice = Dice(11);
    let mut head = empty();
    let mut keys = 0;
    for _ in 0..ROUNDS {
        let query_text = dice.line(SEEDS);
        let Ok(uri) = http::Uri::try_from([b"/?", &query_text[..]].concat()) else {
            continue;
        };
        head.uri = uri;
        let found = key(&query("q"), &head);
        keys += usize::from(found.is_ok());
        bounded(&found, "q", query_text.len());
    }
    assert!(keys > ROUNDS / 50, "the seeds are worthless: {keys}");
}

/// Megabytes are answered as fast as a few lines: what bounds the work is asserted through what is not read.
#[test]
fn entries_beyond_the_limits_are_not_read() {
    let walk = |name: &'static str, client: ClientIp, lines: &[Vec<u8>]| {
        let client = client.trusted_proxies(["10.0.0.0/8"]);
        client
            .resolve(&from(PEER, with_lines(name, lines)))
            .expect("there is a peer")
            .to_string()
    };
    let huge = |piece: &[u8], times: usize| vec![piece.repeat(times)];
    let xff = || client_ip().x_forwarded_for();
    let forwarded = || client_ip().forwarded();

    let mut line = huge(b"6.6.6.6, ", 10_000);
    line[0].extend_from_slice(&b"10.0.0.2, ".repeat(64)[..638]);
    assert_eq!(walk("x-forwarded-for", xff(), &line), "10.0.0.2");
    for piece in [&b"x"[..], b"\"", b"\xff", b",", b" "] {
        assert_eq!(walk("x-forwarded-for", xff(), &huge(piece, 1 << 20)), PEER);
        assert_eq!(walk("forwarded", forwarded(), &huge(piece, 1 << 20)), PEER);
    }
    assert_eq!(
        walk("forwarded", forwarded(), &huge(b"for=6.6.6.6,", 10_000)),
        PEER
    );
    assert_eq!(walk("forwarded", forwarded(), &huge(b"a=1;", 2_000)), PEER);

    let many: Vec<_> = std::iter::repeat_n(b"10.0.0.2".to_vec(), 10_000).collect();
    assert_eq!(walk("x-forwarded-for", xff(), &many), "10.0.0.2");
    let many: Vec<_> = std::iter::repeat_n(b"for=10.0.0.2".to_vec(), 10_000).collect();
    assert_eq!(walk("forwarded", forwarded(), &many), "10.0.0.2");
}
