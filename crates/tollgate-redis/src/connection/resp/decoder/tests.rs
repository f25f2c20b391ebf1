//! Replies in every form, in pieces, and from servers that lie.

use proptest::{collection::vec, prelude::*};

use crate::connection::{
    resp::decoder::{Decoder, Reply},
    value::Value,
};

fn value(bytes: &[u8]) -> Value {
    match Decoder::default().decode(bytes) {
        Ok(Some((Reply::Value(value), length))) if length == bytes.len() => value,
        other => panic!("{other:?}"),
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[test]
fn each_kind_of_reply_is_read() {
    assert_eq!(value(b":-3\r\n"), Value::Integer(-3));
    assert_eq!(value(b"+OK\r\n"), text("OK"));
    assert_eq!(value(b"$3\r\na\r\n\r\n"), text("a\r\n"));
    assert_eq!(value(b"$0\r\n\r\n"), text(""));
    assert_eq!(value(b"$-1\r\n"), Value::Nil);
    assert_eq!(value(b"*-1\r\n"), Value::Nil);
    assert_eq!(value(b"_\r\n"), Value::Nil);
    assert_eq!(value(b",1.5\r\n"), text("1.5"));
    assert_eq!(
        value(b"(123456789012345678901\r\n"),
        text("123456789012345678901")
    );
    assert_eq!(value(b"#t\r\n"), Value::Integer(1));
    assert_eq!(value(b"#f\r\n"), Value::Integer(0));
    assert_eq!(value(b"=5\r\ntxt:a\r\n"), text("a"));
    assert_eq!(value(b"*0\r\n"), Value::List(vec![]));
    assert_eq!(
        value(b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n"),
        Value::List(vec![Value::Integer(1), Value::List(vec![text("a")])])
    );
    assert_eq!(value(b"~1\r\n:3\r\n"), Value::List(vec![Value::Integer(3)]));
    assert_eq!(
        value(b"%1\r\n+proto\r\n:3\r\n"),
        Value::List(vec![text("proto"), Value::Integer(3)])
    );
    assert_eq!(value(b"|1\r\n+a\r\n:1\r\n:7\r\n"), Value::Integer(7));
}

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
fn errors_keep_their_text_also_inside_of_an_answer() {
    let error = |bytes: &[u8], line: &str| {
        let expected = Ok(Some((Reply::Error(line.into()), bytes.len())));
        assert_eq!(Decoder::default().decode(bytes), expected);
    };
    error(
        b"-NOSCRIPT No matching script.\r\n",
        "NOSCRIPT No matching script.",
    );
    error(b"!9\r\nOOM a\r\nbc\r\n", "OOM a  bc");
    assert_eq!(
        value(b"*2\r\n:1\r\n-WRONGTYPE no\r\n"),
        Value::List(vec![Value::Integer(1), Value::Error("WRONGTYPE no".into())])
    );
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
        b"*-2\r\n",
        b"$999999999999\r\n",
        b"*999999999999\r\n",
        b"%9223372036854775807\r\n",
        b"*9223372036854775808\r\n",
        b"$1\r\nab\r\n",
        b"$2\r\na\r\n\r\n",
        b"*1\r\n$3\r\nabcd\r\n",
        b"*\r\n",
        b":\r\n",
        b":-\r\n",
        b":1a\r\n",
        b":9223372036854775808\r\n",
        b"*1\r\n:9223372036854775808\r\n",
        b"#x\r\n",
        b"~-1\r\n",
        b"%-1\r\n",
        b">-1\r\n",
        b"!-1\r\n",
        b"=-1\r\n",
        b"=2\r\na:\r\n",
        b"=4\r\ntext\r\n",
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
fn a_count_reserves_nothing_before_its_values_are_there() {
    let mut decoder = Decoder::default();
    assert_eq!(decoder.decode(b"*1000000\r\n:1\r\n"), Ok(None));
    assert!(decoder.integers.capacity() < 64);
    // Each level promises a million values; together they are too many.
    assert!(decoder.decode(b"*1000000\r\n*1000000\r\n").is_err());
    assert_eq!(decoder.decode(b"*1000000\r\n+a\r\n"), Ok(None));
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

/// A reply as a server writes it.
fn written(value: &Value) -> Vec<u8> {
    match value {
        Value::Nil => b"$-1\r\n".to_vec(),
        Value::Integer(integer) => format!(":{integer}\r\n").into(),
        Value::Integers(integers) => {
            let list = integers.iter().map(|integer| Value::Integer(*integer));
            written(&Value::List(list.collect()))
        }
        Value::Text(text) => [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat(),
        Value::List(values) => {
            let head = format!("*{}\r\n", values.len()).into_bytes();
            values
                .iter()
                .map(written)
                .fold(head, |all, one| [all, one].concat())
        }
        Value::Error(line) => format!("-{line}\r\n").into(),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<i64>().prop_map(Value::Integer),
        vec(any::<u8>(), 0..12).prop_map(Value::Text),
        "[A-Z]{1,6} [a-z ]{0,9}".prop_map(Value::Error),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| vec(inner, 0..5).prop_map(Value::List))
}

/// What is read of it: integers lie in a row, and an error alone is one.
fn expected(value: Value) -> Reply<'static> {
    let integer = |value: &Value| match value {
        Value::Integer(integer) => Some(*integer),
        _ => None,
    };
    match value {
        Value::Error(line) => Reply::Error(line),
        Value::List(values) if !values.is_empty() => {
            match values.iter().map(integer).collect::<Option<Vec<_>>>() {
                Some(integers) => Reply::Integers(integers.leak()),
                None => Reply::Value(Value::List(values)),
            }
        }
        value => Reply::Value(value),
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in vec(prop_oneof![
        Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), Just(b'%'), Just(b'|'), Just(b':'), Just(b'1'), Just(b'9'),
        Just(b'-'), any::<u8>(),
    ], 0..96)) {
        let _ = Decoder::default().decode(&bytes);
    }

    #[test]
    fn a_reply_is_read_as_it_was_written_and_no_prefix_of_it_is(value in any_value(), rest in vec(any::<u8>(), 0..4)) {
        let whole = written(&value);
        let mut decoder = Decoder::default();
        for end in 0..whole.len() {
            prop_assert_eq!(decoder.decode(&whole[..end]), Ok(None));
        }
        let length = whole.len();
        let read = decoder.decode(&[whole, rest].concat()).map(|read| read.map(|(reply, length)| (format!("{reply:?}"), length)));
        prop_assert_eq!(read, Ok(Some((format!("{:?}", expected(value)), length))));
    }

    #[test]
    fn a_byte_that_was_changed_never_gives_more_than_there_is(value in any_value(), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = written(&value);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let mut decoder = Decoder::default();
        if let Ok(Some((_, length))) = decoder.decode(&bytes) {
            prop_assert!(length <= bytes.len());
        }
        prop_assert!(decoder.integers.capacity() <= bytes.len());
    }
}
