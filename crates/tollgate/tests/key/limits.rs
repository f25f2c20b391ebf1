//! How much of a header is read.

use tollgate::key::{ClientIp, client_ip};

use crate::support::{from, with_lines};

const PEER: &str = "10.0.0.1";

/// Megabytes are answered as fast as a few lines: what bounds the work is asserted through what is not read.
#[test]
fn entries_beyond_the_limits_are_not_read() {
    let walk = |name: &'static str, client: ClientIp, lines: &[Vec<u8>]| {
        let client = client.trusted_proxies(["10.0.0.0/8"]);
        client
            .address(&from(PEER, with_lines(name, lines)))
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
