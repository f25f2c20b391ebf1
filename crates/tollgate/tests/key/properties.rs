//! What holds for every header that a client may write.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Request;
use proptest::prelude::*;
use tollgate::key::{ClientIp, KeyBuf, NoKey, client_ip, cookie, query};

use crate::support::{from, key, resolved, with_lines, with_uri};

/// A client that is no proxy of ours.
fn client() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits))),
    ]
    .prop_map(|address| address.to_canonical())
    .prop_filter("not one of our proxies", |address| match address {
        IpAddr::V4(v4) => v4.octets()[0] != 10,
        IpAddr::V6(_) => true,
    })
}

/// What a client writes into a list: nonsense, and what looks like the truth.
fn written() -> impl Strategy<Value = Vec<String>> {
    let piece = prop_oneof![
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just(",".to_owned()),
        Just(";".to_owned()),
        Just("for=".to_owned()),
        Just("for=\"".to_owned()),
        Just("=".to_owned()),
        Just("10.0.0.1".to_owned()),
        Just("6.6.6.6".to_owned()),
        Just("for=6.6.6.6, ".to_owned()),
        Just("for=\"[2001:db8::6]\", ".to_owned()),
        Just("a=\"".to_owned()),
        "[ -~]{0,8}",
    ];
    let line = proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat());
    proptest::collection::vec(line, 0..4)
}

fn spelled(address: IpAddr, port: bool) -> String {
    match (address, port) {
        (address, false) => address.to_string(),
        (IpAddr::V4(v4), true) => format!("{v4}:443"),
        (IpAddr::V6(v6), true) => format!("[{v6}]:443"),
    }
}

fn element(address: IpAddr, tail: &str) -> String {
    match address {
        IpAddr::V4(v4) => format!("for={v4}{tail}"),
        IpAddr::V6(v6) => format!("for=\"[{v6}]\"{tail}"),
    }
}

/// Lines as a proxy completes them: it goes on with the last line, or adds one.
fn completed(mut written: Vec<String>, added: &str, own_line: bool) -> Vec<String> {
    match written.last_mut() {
        Some(last) if !own_line => *last = format!("{last}, {added}"),
        _ => written.push(added.to_owned()),
    }
    written
}

const PROXIES: &str = "10.0.0.2";

/// Whether the address can be read in a line, with or without what stands around it.
fn appears(lines: &[String], address: &str) -> bool {
    let readable = |text: &str| {
        let read = text.parse::<IpAddr>();
        read.is_ok_and(|found| found.to_canonical().to_string() == address)
    };
    let is_outside = |c: char| !(c.is_ascii_hexdigit() || c == ':' || c == '.');
    let mut runs = lines.iter().flat_map(|line| line.split(is_outside));
    runs.any(|run| readable(run) || run.rsplit_once(':').is_some_and(|(run, _)| readable(run)))
}

/// Asserts that a key is no longer than what was sent, with the name and two heads of nine bytes.
fn bounded(found: Result<KeyBuf, NoKey>, name: &str, sent: usize) {
    match found {
        Ok(key) => assert!(key.len() <= sent + name.len() + 18),
        Err(why) => assert!(matches!(why, NoKey::Absent | NoKey::Ambiguous)),
    }
}

proptest! {
    #[test]
    fn the_client_is_the_peer_or_an_address_of_the_header(lines in written()) {
        let proxies = || client_ip().trusted_proxies(["10.0.0.0/8"]);
        for (name, client) in [
            ("x-forwarded-for", proxies().x_forwarded_for()),
            ("x-forwarded-for", client_ip().x_forwarded_for().hops(2)),
            ("forwarded", proxies().forwarded()),
            ("forwarded", client_ip().forwarded().hops(2)),
            ("x-real-ip", proxies().single_header("x-real-ip")),
        ] {
            let head = from("10.0.0.1", with_lines(name, &lines));
            let found = resolved(&client, &head);
            prop_assert!(found == "10.0.0.1" || appears(&lines, &found), "{} from {:?}", found, lines);
            prop_assert!(key(&client, &head).expect("there is a peer").len() <= 9 + 18);
        }
    }

    #[test]
    fn a_cookie_and_a_parameter_of_the_query_give_a_bounded_key(
        text in "((session|%73ession|q|%71|a)=?|abc|[;&%+\"=]|%6|%61|[!-~]){0,8}",
    ) {
        let head = with_lines("cookie", &[&text]);
        bounded(key(&cookie("session"), &head), "session", text.len());
        if let Ok(uri) = format!("/?{text}").parse() {
            let (mut head, ()) = Request::new(()).into_parts();
            head.uri = uri;
            bounded(key(&query("q"), &head), "q", text.len());
        }
    }

    #[test]
    fn entries_of_a_client_in_x_forwarded_for_have_no_effect(
        address in client(), written in written(), port: bool, own_line: bool, inner: bool,
    ) {
        let mut added = spelled(address, port);
        if inner {
            added = format!("{added}, {PROXIES}");
        }
        let lines = completed(written, &added, own_line);
        let head = from("10.0.0.1", with_lines("x-forwarded-for", &lines));
        let walk = client_ip().trusted_proxies(["10.0.0.0/8"]).x_forwarded_for();
        prop_assert_eq!(resolved(&walk, &head), address.to_string());
        let hops = client_ip().x_forwarded_for().hops(1 + usize::from(inner));
        prop_assert_eq!(resolved(&hops, &head), address.to_string());
    }

    /// A quote may spoil the line that the proxy completes. Then the peer counts, never an address that the client chose.
    #[test]
    fn entries_of_a_client_in_forwarded_give_its_address_or_the_peer(
        address in client(),
        written in written(),
        tail in prop_oneof![Just(""), Just(";proto=https"), Just(";by=\"_x\""), Just(";host=\"\""), Just(";a=\"x=1, b=\"")],
        own_line: bool,
        inner: bool,
    ) {
        let mut added = element(address, tail);
        if inner {
            added = format!("{added}, for={PROXIES}");
        }
        let lines = completed(written, &added, own_line);
        let head = from("10.0.0.1", with_lines("forwarded", &lines));
        for client in [
            client_ip().trusted_proxies(["10.0.0.0/8"]).forwarded(),
            client_ip().forwarded().hops(1 + usize::from(inner)),
        ] {
            let found = resolved(&client, &head);
            prop_assert!(found == address.to_string() || found == "10.0.0.1", "{} from {:?}", found, lines);
            if own_line {
                prop_assert_eq!(found, address.to_string());
            }
        }
    }

    /// Well-formed elements in front cannot even spoil the line.
    #[test]
    fn elements_that_a_client_writes_into_forwarded_change_nothing(
        address in client(), forged in proptest::collection::vec(client(), 0..70),
    ) {
        let elements: Vec<_> = forged.into_iter().chain([address]).map(|a| element(a, "")).collect();
        let head = from("10.0.0.1", with_lines("forwarded", &[elements.join(",")]));
        let walk = client_ip().trusted_proxies(["10.0.0.0/8"]).forwarded();
        prop_assert_eq!(resolved(&walk, &head), address.to_string());
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_writes(peer in client(), lines in written()) {
        for (name, client) in [
            ("x-forwarded-for", client_ip().x_forwarded_for()),
            ("forwarded", client_ip().forwarded()),
            ("x-real-ip", client_ip().single_header("x-real-ip")),
        ] {
            let client = client.trusted_proxies(["10.0.0.0/8"]);
            let head = from(&peer.to_string(), with_lines(name, &lines));
            prop_assert_eq!(resolved(&client, &head), peer.to_string());
        }
    }

    #[test]
    fn addresses_of_one_network_and_only_these_share_a_key(
        a: u128, b: u128, flipped in 0..128u32, prefix in 1..=128u8,
    ) {
        let by = |client: &ClientIp, bits: u128| {
            let head = from(&Ipv6Addr::from_bits(bits).to_string(), with_lines("a", &[""; 0]));
            key(client, &head).expect("there is a peer")
        };
        let client = client_ip().ipv6_prefix(prefix);
        // The first bit keeps the address away from the IPv4-mapped ones.
        let a = a | 1 << 127;
        let other = a ^ (1 << flipped);
        prop_assume!(other >> 127 == 1);
        prop_assert_eq!(by(&client, a) == by(&client, other), 128 - flipped > prefix.into());
        let same = if prefix == 128 { a } else { (a >> (128 - prefix) << (128 - prefix)) | (b >> prefix) };
        prop_assert_eq!(by(&client, a), by(&client, same));
    }

    #[test]
    fn a_query_value_has_one_key_in_every_spelling(value in "[ -~]{1,12}", escaped: u32) {
        let spell = |escaped: u32| {
            let value: String = value.bytes().enumerate().map(|(i, b)| {
                if b.is_ascii_alphanumeric() && escaped & (1 << i) == 0 {
                    char::from(b).to_string()
                } else {
                    format!("%{b:02x}")
                }
            }).collect();
            key(&query("q"), &with_uri(&format!("/?q={value}")))
        };
        prop_assert!(spell(0).is_ok());
        prop_assert_eq!(spell(0), spell(escaped));
    }
}
