//! Replies in every form, in pieces, and from servers that lie.

use crate::connection::resp::decode;

#[test]
fn lengths_that_lie_are_refused() {
    for bytes in [
        &b"$-7\r\n"[..],
        b"$999999999999\r\n",
        b"*9223372036854775808\r\n",
        b"$1\r\nab\r\n",
        b"$2\r\na\r\n\r\n",
        b"*1\r\n$3\r\nabcd\r\n",
        b":\r\n",
        b":1a\r\n",
        b":9223372036854775808\r\n",
        b"*1\r\n:9223372036854775808\r\n",
        b"#t\r\n",
        b"\r\n",
        b":1\rx",
        b"HTTP/1.1 400 Bad Command\r\n",
    ] {
        let read = decode(bytes).map(|read| read.is_some());
        assert!(read.is_err(), "{}: {read:?}", bytes.escape_ascii());
    }
}

#[test]
fn depth_has_a_bound() {
    let nested = |levels: usize| [b"*1\r\n".repeat(levels), b":1\r\n".to_vec()].concat();
    assert!(decode(&nested(16)).is_ok());
    for bytes in [nested(17), b"*1\r\n".repeat(1 << 20)] {
        assert!(decode(&bytes).is_err());
    }
}

#[test]
fn a_reply_has_16_mib_at_most() {
    const MOST: usize = 16 * 1_024 * 1_024;
    let is_awaited = |bytes: &[u8]| decode(bytes) == Ok(None);
    assert!(is_awaited(format!("${MOST}\r\n").as_bytes()));
    assert!(!is_awaited(format!("${}\r\n", MOST + 1).as_bytes()));
    // Without a length.
    let mut bytes = vec![b'+'; MOST];
    assert!(is_awaited(&bytes));
    bytes.push(b'+');
    assert!(!is_awaited(&bytes));
}
