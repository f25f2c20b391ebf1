//! The address of the client, by vectors.

use tollgate::key::{ClientIp, KeyBuf, KeyExtractor, NoKey, PartKind, client_ip};

use crate::support::{empty, from, key, resolved, with_lines};

const XFF: &str = "x-forwarded-for";

fn behind_ten() -> ClientIp {
    client_ip()
        .trusted_proxies(["10.0.0.0/8"])
        .x_forwarded_for()
}

fn xff(peer: &str, client: &ClientIp, lines: &[&str]) -> String {
    resolved(client, &from(peer, with_lines(XFF, lines)))
}

#[test]
fn the_client_is_the_peer_by_default() {
    for name in [
        XFF,
        "x-real-ip",
        "forwarded",
        "cf-connecting-ip",
        "true-client-ip",
    ] {
        let head = from("192.0.2.1", with_lines(name, &["6.6.6.6"]));
        assert_eq!(resolved(&client_ip(), &head), "192.0.2.1");
    }
}

#[test]
fn two_hops_are_the_last_entry_but_one() {
    let client = client_ip().x_forwarded_for().hops(2);
    for lines in [
        &["6.6.6.6, 203.0.113.9, 10.0.0.2"][..],
        &["6.6.6.6", "203.0.113.9", "10.0.0.2"],
        &["203.0.113.9,10.0.0.2"],
        &["203.0.113.9, junk"],
    ] {
        assert_eq!(xff("10.0.0.1", &client, lines), "203.0.113.9", "{lines:?}");
    }
}

#[test]
fn a_hop_that_is_no_address_gives_the_peer() {
    let client = client_ip().x_forwarded_for().hops(2);
    assert_eq!(
        xff("10.0.0.1", &client, &["6.6.6.6, unknown, 10.0.0.2"]),
        "10.0.0.1"
    );
}

#[test]
fn an_invalid_entry_stops_the_walk() {
    for junk in [
        "junk",
        "",
        "unknown",
        "fe80::1%eth0",
        "203.0.113.9:http",
        "203.0.113.9:65536",
        "203.0.113.9:000080",
        "[2001:db8::1]:000080",
        "203.0.113.09",
        "0xCB007109",
        "[203.0.113.9]",
        "[2001:db8::1]x",
        "\"203.0.113.9",
    ] {
        let line = format!("203.0.113.9, {junk}, 10.0.0.2");
        assert_eq!(
            xff("10.0.0.1", &behind_ten(), &[&line]),
            "10.0.0.2",
            "{junk}"
        );
        let line = format!("203.0.113.9, {junk}");
        assert_eq!(
            xff("10.0.0.1", &behind_ten(), &[&line]),
            "10.0.0.1",
            "{junk}"
        );
    }
}

#[test]
fn if_all_are_trusted_the_leftmost_counts() {
    let lines = ["10.0.0.3, 10.0.0.2"];
    assert_eq!(xff("10.0.0.1", &behind_ten(), &lines), "10.0.0.3");
}

#[test]
fn addresses_may_have_ports_brackets_and_quotes() {
    for (entry, address) in [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:443", "192.0.2.1"),
        ("192.0.2.1:65535", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("\"[2001:db8::1]:443\"", "2001:db8::1"),
        (" \t192.0.2.1\t ", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("[::FFFF:192.0.2.1]:1", "192.0.2.1"),
    ] {
        assert_eq!(xff("10.0.0.1", &behind_ten(), &[entry]), address, "{entry}");
    }
}

#[test]
fn a_mapped_proxy_is_trusted_as_ipv4() {
    let lines = ["203.0.113.9, ::ffff:a00:2"];
    assert_eq!(xff("::ffff:10.0.0.1", &behind_ten(), &lines), "203.0.113.9");
}

#[test]
fn at_most_64_entries_are_read() {
    let line = format!("203.0.113.9{}", ", 10.0.0.2".repeat(63));
    assert_eq!(xff("10.0.0.1", &behind_ten(), &[&line]), "203.0.113.9");
    let line = format!("203.0.113.9, 10.0.0.3{}", ", 10.0.0.2".repeat(63));
    assert_eq!(xff("10.0.0.1", &behind_ten(), &[&line]), "10.0.0.3");
}

#[test]
fn an_entry_of_more_than_128_bytes_falls_back_to_the_peer() {
    let line = format!("203.0.113.9, {} , 10.0.0.2", "x".repeat(1 << 20));
    assert_eq!(xff("10.0.0.1", &behind_ten(), &[&line]), "10.0.0.1");
    let padded = format!("203.0.113.9,{}10.0.0.2", " ".repeat(200));
    assert_eq!(xff("10.0.0.1", &behind_ten(), &[&padded]), "10.0.0.1");
}

#[test]
fn hops_do_not_count_past_an_entry_of_more_than_128_bytes() {
    let long = "x".repeat(200);
    let client = client_ip().x_forwarded_for().hops(2);
    assert_eq!(xff("10.0.0.1", &client, &["6.6.6.6", &long]), "10.0.0.1");
}

#[test]
fn bytes_that_are_no_text_are_no_address() {
    let head = from(
        "10.0.0.1",
        with_lines(XFF, &[b"203.0.113.9, \xff\xfe, 10.0.0.2"]),
    );
    assert_eq!(resolved(&behind_ten(), &head), "10.0.0.2");
}

#[test]
fn a_single_header_counts_if_it_is_there_once_and_without_a_comma() {
    let client = client_ip()
        .trusted_proxies(["10.0.0.1"])
        .single_header("CF-Connecting-IP");
    let long = format!("203.0.113.9{}", " ".repeat(1000));
    for (lines, address) in [
        (&["203.0.113.9"][..], "203.0.113.9"),
        (&["203.0.113.9:443"], "203.0.113.9"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["[2001:db8::1]:443"], "2001:db8::1"),
        (&["::ffff:203.0.113.9"], "203.0.113.9"),
        (&["203.0.113.9", "203.0.113.9"], "10.0.0.1"),
        (&["203.0.113.9, 203.0.113.9"], "10.0.0.1"),
        (&["203.0.113.9,"], "10.0.0.1"),
        (&["junk"], "10.0.0.1"),
        (&[""], "10.0.0.1"),
        (&[&long], "10.0.0.1"),
        (&[], "10.0.0.1"),
    ] {
        let head = from("10.0.0.1", with_lines("cf-connecting-ip", lines));
        assert_eq!(resolved(&client, &head), address, "{lines:?}");
    }
    let head = from("10.0.0.9", with_lines("cf-connecting-ip", &["203.0.113.9"]));
    assert_eq!(resolved(&client, &head), "10.0.0.9");
}

#[test]
fn without_a_peer_the_answer_names_the_calls_to_add() {
    // It cannot be seen before a request comes.
    assert!(client_ip().validate().is_ok());
    let Err(NoKey::Misconfigured(text)) = key(&client_ip(), &empty()) else {
        panic!("a request without a peer has no key")
    };
    assert!(text.contains("into_make_service_with_connect_info::<SocketAddr>()"));
    assert!(text.contains("PeerAddr"));
    assert!(text.contains(r#"trusted_proxies(["unix:"])"#));
}

#[test]
fn a_header_without_a_peer_is_ignored() {
    let client = client_ip().x_forwarded_for().hops(1);
    let head = with_lines(XFF, &["203.0.113.9"]);
    assert!(matches!(
        client.resolve(&head),
        Err(NoKey::Misconfigured(_))
    ));
}

#[test]
fn a_proxy_on_a_unix_socket_is_trusted_by_name() {
    let socket = || client_ip().trusted_proxies(["unix:"]);
    let head = |name, line: &str| with_lines(name, &[line]);
    for (client, head, expected) in [
        (
            socket().x_forwarded_for(),
            head(XFF, "6.6.6.6, 203.0.113.9"),
            "203.0.113.9",
        ),
        // Another nginx in front, on a socket too, and a load balancer.
        (
            socket().x_forwarded_for(),
            head(XFF, "203.0.113.9, unix:"),
            "203.0.113.9",
        ),
        (
            socket().trusted_proxies(["10.0.0.0/8"]).x_forwarded_for(),
            head(XFF, "6.6.6.6, 203.0.113.9, 10.0.0.2"),
            "203.0.113.9",
        ),
        (
            socket().hops(2).x_forwarded_for(),
            head(XFF, "6.6.6.6, 203.0.113.9, x"),
            "203.0.113.9",
        ),
        (
            client_ip()
                .hops(1)
                .trusted_proxies(["unix:"])
                .x_forwarded_for(),
            head(XFF, "203.0.113.9"),
            "203.0.113.9",
        ),
        (
            socket().single_header("x-real-ip"),
            head("x-real-ip", "203.0.113.9"),
            "203.0.113.9",
        ),
        (
            socket().forwarded(),
            head("forwarded", "for=203.0.113.9"),
            "203.0.113.9",
        ),
        // A peer with an address is none of it.
        (
            socket().x_forwarded_for(),
            from("192.0.2.1", head(XFF, "203.0.113.9")),
            "192.0.2.1",
        ),
        (
            behind_ten(),
            from("10.0.0.1", head(XFF, "203.0.113.9, unix:")),
            "10.0.0.1",
        ),
    ] {
        assert_eq!(resolved(&client, &head), expected);
    }
    for head in [empty(), head(XFF, "junk"), head(XFF, "")] {
        let Err(NoKey::Misconfigured(text)) = key(&socket().x_forwarded_for(), &head) else {
            panic!("nobody names the client")
        };
        assert!(text.contains("proxy_set_header X-Forwarded-For"), "{text}");
    }
    for (client, words) in [
        (
            client_ip()
                .trusted_proxies(["unix:/run/app.sock"])
                .x_forwarded_for(),
            "write \"unix:\"",
        ),
        (socket(), "reads no header"),
    ] {
        let error = client.validate().expect_err("it is wrong");
        assert!(error.contains(words), "{error}");
    }
}

fn network(bytes: &[u8]) -> KeyBuf {
    let mut key = KeyBuf::new();
    key.push(PartKind::ADDRESS, bytes);
    key
}

#[test]
fn the_key_is_family_prefix_length_and_network() {
    let v6 = from("2001:db8:abcd:1234:5678:9abc:def0:1", empty());
    let v4 = from("192.0.2.129", empty());
    let prefix = [0x20, 0x01, 0x0d, 0xb8, 0xab, 0xcd];

    let by = |client: ClientIp, head| key(&client, head).expect("there is a peer");
    let mut expected = [&[6, 64][..], &prefix, &[0x12, 0x34], &[0; 8]].concat();
    assert_eq!(by(client_ip(), &v6), network(&expected));
    expected = [&[6, 56][..], &prefix, &[0x12, 0], &[0; 8]].concat();
    assert_eq!(by(client_ip().ipv6_prefix(56), &v6), network(&expected));
    expected = [&[6, 48][..], &prefix, &[0; 10]].concat();
    assert_eq!(by(client_ip().ipv6_prefix(48), &v6), network(&expected));
    assert_eq!(by(client_ip(), &v4), network(&[4, 32, 192, 0, 2, 129]));
    assert_eq!(
        by(client_ip().ipv4_prefix(25), &v4),
        network(&[4, 25, 192, 0, 2, 128])
    );
    assert_eq!(
        by(client_ip().ipv4_prefix(24), &v4),
        network(&[4, 24, 192, 0, 2, 0])
    );
}
