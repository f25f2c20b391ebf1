//! Replies in every form, in pieces, and from servers that lie.

use crate::connection::resp::decoder::{Decoder, Reply};

#[test]
fn integers_lie_in_a_row_and_the_memory_is_kept() {
    let mut decoder = Decoder::default();
    for bytes in [&b"*3\r\n:1\r\n:-2\r\n:+3\r\n"[..], b"*2\r\n:4\r\n:5\r\n"] {
        let Ok(Some((Reply::Integers(integers), length))) = decoder.decode(bytes) else {
            panic!("{bytes:?}");
        };
        assert_eq!(length, bytes.len());
        assert_eq!(
            integers.iter().map(|integer| integer.abs()).sum::<i64>() % 3,
            0
        );
    }
    let extremes = b"*2\r\n:-9223372036854775808\r\n:9223372036854775807\r\n";
    let expected = Ok(Some((
        Reply::Integers(&[i64::MIN, i64::MAX][..]),
        extremes.len(),
    )));
    assert_eq!(decoder.decode(extremes), expected);
}

#[test]
fn a_push_is_distinguished() {
    let bytes = b">2\r\n+invalidate\r\n*-1\r\n:1\r\n";
    let mut decoder = Decoder::default();
    assert_eq!(
        decoder.decode(bytes),
        Ok(Some((Reply::Push, bytes.len() - 4)))
    );
    assert_eq!(decoder.decode(b">0\r\n"), Ok(Some((Reply::Push, 4))));
    // Also behind something that is said about it.
    let bytes = b"|1\r\n+ttl\r\n:3600\r\n>1\r\n+invalidate\r\n";
    let read = decoder.decode(bytes);
    assert_eq!(read, Ok(Some((Reply::Push, bytes.len()))));
}

#[test]
fn lengths_that_lie_are_refused() {
    for bytes in [
        &b"$-7\r\n"[..],
        b"$999999999999\r\n",
        b"%9223372036854775807\r\n",
        b"*9223372036854775808\r\n",
        b"$1\r\nab\r\n",
        b"$2\r\na\r\n\r\n",
        b"*1\r\n$3\r\nabcd\r\n",
        b":\r\n",
        b":1a\r\n",
        b":9223372036854775808\r\n",
        b"*1\r\n:9223372036854775808\r\n",
        b"#x\r\n",
        b"~-1\r\n",
        b"!-1\r\n",
        b"=-1\r\n",
        b"=2\r\na:\r\n",
        b"=6\r\ntexta:\r\n",
        b"\r\n",
        b":1\rx",
        b"HTTP/1.1 400 Bad Request\r\n",
    ] {
        let read = Decoder::default().decode(bytes).map(|read| read.is_some());
        assert!(read.is_err(), "{}: {read:?}", bytes.escape_ascii());
    }
}

#[test]
fn depth_has_a_bound() {
    let nested = |levels: usize| [b"*1\r\n".repeat(levels), b":1\r\n".to_vec()].concat();
    assert!(Decoder::default().decode(&nested(16)).is_ok());
    for bytes in [
        nested(17),
        b"*1\r\n".repeat(1 << 20),
        b"|0\r\n".repeat(1 << 20),
    ] {
        assert!(Decoder::default().decode(&bytes).is_err());
    }
}

#[test]
fn what_is_said_about_an_answer_is_nested_no_deeper_than_the_answer_may_be() {
    let said = |times: usize, before: &[u8]| {
        let said = b"|0\r\n".repeat(times);
        let bytes = [before, &said, b":1\r\n"].concat();
        Decoder::default().decode(&bytes).is_ok()
    };
    assert_eq!([16, 17].map(|times| said(times, b"")), [true, false]);
    let within = b"*1\r\n";
    assert_eq!([15, 16].map(|times| said(times, within)), [true, false]);
}

#[test]
fn a_reply_has_16_mib_at_most() {
    const MOST: usize = 16 * 1_024 * 1_024;
    let is_awaited = |bytes: &[u8]| Decoder::default().decode(bytes) == Ok(None);
    for mark in ["$", "!", "="] {
        assert!(is_awaited(format!("{mark}{MOST}\r\n").as_bytes()), "{mark}");
        let longer = format!("{mark}{}\r\n", MOST + 1);
        assert!(!is_awaited(longer.as_bytes()), "{mark}");
    }
    // Without a length.
    let mut bytes = vec![b'+'; MOST];
    assert!(is_awaited(&bytes));
    bytes.push(b'+');
    assert!(!is_awaited(&bytes));
}
