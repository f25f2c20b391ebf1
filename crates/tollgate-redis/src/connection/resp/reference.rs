//! The reader beside the one of redis-rs: what both read, they read alike; and commands beside those it writes.

use proptest::{collection::vec, prelude::*, sample::Index};
use redis::{Value as Theirs, pack_command, parse_redis_value};

use super::*;
use crate::connection::{
    command::{push_argument, push_count, push_number},
    request::Request,
    script::Script,
};

/// What redis-rs reads, in the words of this crate; `None` if it is a push.
fn in_our_words(theirs: Theirs) -> Option<Value> {
    let list = |values: Vec<Theirs>| values.into_iter().map(nested).collect();
    Some(match theirs {
        Theirs::Nil => Value::Nil,
        Theirs::Int(integer) => Value::Integer(integer),
        Theirs::BulkString(bytes) | Theirs::BigNumber(bytes) => Value::Text(bytes),
        Theirs::Okay => Value::Text(b"OK".into()),
        Theirs::SimpleString(text) | Theirs::VerbatimString { text, .. } => {
            Value::Text(text.into())
        }
        Theirs::Double(number) => Value::Text(number.to_string().into()),
        Theirs::Boolean(boolean) => Value::Integer(boolean.into()),
        Theirs::Array(values) | Theirs::Set(values) => Value::List(list(values)),
        Theirs::Map(pairs) => Value::List(list(flat(pairs))),
        Theirs::Attribute { data, .. } => return in_our_words(*data),
        Theirs::Push { .. } => return None,
        Theirs::ServerError(error) => Value::Error(match error.details() {
            Some(details) => format!("{} {details}", error.code()).replace(['\r', '\n'], " "),
            None => error.code().replace(['\r', '\n'], " "),
        }),
        other => panic!("{other:?} is new"),
    })
}

fn flat(pairs: Vec<(Theirs, Theirs)>) -> Vec<Theirs> {
    pairs
        .into_iter()
        .flat_map(|(key, value)| [key, value])
        .collect()
}

/// A push inside of a reply, which no server sends, is a list here.
fn nested(theirs: Theirs) -> Value {
    match theirs {
        Theirs::Push { kind, data } if kind.to_string().is_empty() && data.is_empty() => {
            Value::List(Vec::new())
        }
        Theirs::Push { kind, data } => {
            let kind = Value::Text(kind.to_string().into());
            Value::List(
                [kind]
                    .into_iter()
                    .chain(data.into_iter().map(nested))
                    .collect(),
            )
        }
        other => in_our_words(other).unwrap_or(Value::Nil),
    }
}

/// What this crate reads, with doubles as redis-rs writes them and integers in a row as a list; `None` if it is a push.
fn plain(reply: Reply<'_>) -> Option<Value> {
    match reply {
        Reply::Push => None,
        Reply::Error(line) => Some(Value::Error(line)),
        other => other.into_value().map(|value| match value {
            Value::Integers(integers) => {
                Value::List(integers.into_iter().map(Value::Integer).collect())
            }
            other => other,
        }),
    }
}

fn ours(bytes: &[u8]) -> Result<Option<(Option<Value>, usize)>, Malformed> {
    let mut decoder = Decoder::default();
    let read = decoder.decode(bytes)?;
    Ok(read.map(|(reply, length)| (plain(reply), length)))
}

/// A text without an end of line.
fn line() -> impl Strategy<Value = Vec<u8>> {
    "[ -~]{0,9}".prop_map(String::into_bytes)
}

fn blob(
    mark: &'static str,
    text: impl Strategy<Value = Vec<u8>>,
) -> impl Strategy<Value = Vec<u8>> {
    text.prop_map(move |text| {
        [
            format!("{mark}{}\r\n", text.len()).as_bytes(),
            &text,
            b"\r\n",
        ]
        .concat()
    })
}

/// Any reply, or a push, which is never a part of one.
fn reply() -> impl Strategy<Value = Vec<u8>> {
    let push = vec(answer(), 0..5).prop_map(|values| {
        let head = format!(">{}\r\n+message\r\n", values.len() + 1);
        [head.into_bytes(), values.concat()].concat()
    });
    prop_oneof![9 => answer(), 1 => push]
}

/// A reply as a server writes it. Numbers that are no integers are written as redis-rs shows them.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || vec(any::<u8>(), 0..12);
    let leaf = prop_oneof![
        any::<i64>().prop_map(|integer| format!(":{integer}\r\n").into()),
        line().prop_map(|line| [b"+", &line[..], b"\r\n"].concat()),
        Just(b"+OK\r\n".to_vec()),
        "[A-Z]{1,9}( [ -~]{1,9})?".prop_map(|line| format!("-{line}\r\n").into()),
        blob("$", bytes()),
        blob(
            "!",
            "[A-Z]{1,9} [a-z\r\n]{1,9}".prop_map(String::into_bytes)
        ),
        blob("=", "(txt|mkd|abc):[ -~]{0,9}".prop_map(String::into_bytes)),
        Just(b"$-1\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
        Just(b"_\r\n".to_vec()),
        Just(b"#t\r\n".to_vec()),
        Just(b"#f\r\n".to_vec()),
        any::<f64>().prop_map(|number| format!(",{number}\r\n").into()),
        "-?[1-9][0-9]{18,30}".prop_map(|number| format!("({number}\r\n").into()),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let many = vec(inner.clone(), 0..5);
        let pairs = vec((inner.clone(), inner.clone()), 0..4);
        let pairs = pairs.prop_map(|pairs| {
            (
                pairs.len(),
                pairs
                    .into_iter()
                    .flat_map(|(key, value)| [key, value])
                    .collect::<Vec<_>>()
                    .concat(),
            )
        });
        prop_oneof![
            4 => (prop_oneof![Just('*'), Just('~')], many).prop_map(|(mark, values)| {
                [format!("{mark}{}\r\n", values.len()).into_bytes(), values.concat()].concat()
            }),
            2 => pairs.clone().prop_map(|(count, values)| {
                [format!("%{count}\r\n").into_bytes(), values].concat()
            }),
            1 => (pairs, inner).prop_map(|((count, values), data)| {
                [format!("|{count}\r\n").into_bytes(), values, data].concat()
            }),
        ]
    })
}

/// A reply with some of its bytes changed, left out, or put in.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        prop::sample::select(b"\r\n*$%|~>:+-_#!=,(0123456789 tf".to_vec()),
        any::<u8>(),
    ];
    let damage = (any::<Index>(), 0..3, byte);
    (reply(), vec(damage, 1..4)).prop_map(|(mut bytes, damages)| {
        for (place, what, byte) in damages {
            let place = place.index(bytes.len() + 1);
            match what {
                0 if place < bytes.len() => bytes[place] = byte,
                1 if place < bytes.len() => drop(bytes.remove(place)),
                _ => bytes.insert(place, byte),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2_000), ..ProptestConfig::default() })]

    #[test]
    fn a_reply_is_read_as_redis_rs_reads_it(bytes in reply()) {
        let theirs = in_our_words(parse_redis_value(&bytes).expect("it is one"));
        prop_assert_eq!(ours(&bytes), Ok(Some((theirs, bytes.len()))), "{}", bytes.escape_ascii());
    }

    #[test]
    fn what_both_take_for_a_reply_is_the_same_and_has_the_same_end(bytes in damaged()) {
        let text = || bytes.escape_ascii().to_string();
        match ours(&bytes) {
            Ok(Some((value, length))) => {
                let theirs = parse_redis_value(&bytes[..length]);
                if let Ok(theirs) = theirs {
                    prop_assert_eq!(
                        value.map(shown),
                        in_our_words(theirs).map(shown),
                        "{}",
                        text()
                    );
                }
                // Whoever of the two stops earlier would take the rest for the next reply.
                prop_assert!(parse_redis_value(&bytes[..length - 1]).is_err(), "{}", text());
            }
            Ok(None) => prop_assert!(parse_redis_value(&bytes).is_err(), "it waits for more: {}", text()),
            Err(_) => {}
        }
    }

    #[test]
    fn a_command_is_written_as_redis_rs_writes_it(
        keys in vec(vec(any::<u8>(), 0..40), 1..4),
        args in vec(vec(any::<u8>(), 0..40), 0..4),
        number in any::<usize>(),
    ) {
        let mut ours = Vec::new();
        push_count(&mut ours, 2 + keys.len());
        push_argument(&mut ours, b"SET");
        push_number(&mut ours, number);
        keys.iter().for_each(|key| push_argument(&mut ours, key));
        let head = vec![b"SET".to_vec(), number.to_string().into()];
        prop_assert_eq!(ours, pack_command(&[head, keys.clone()].concat()));

        let script = std::sync::Arc::new(Script::new("return 1"));
        for with_body in [false, true] {
            let mut ours = Vec::new();
            let request = Request::new(&script, &keys, &args);
            Request::write_all([&request].into_iter(), with_body, &mut ours);
            let head = if with_body {
                vec![b"EVAL".to_vec(), b"return 1".to_vec()]
            } else {
                vec![b"EVALSHA".to_vec(), script.sha().to_vec()]
            };
            let count = vec![keys.len().to_string().into_bytes()];
            prop_assert_eq!(ours, pack_command(&[head, count, keys.clone(), args.clone()].concat()));
        }
    }
}

/// Texts as redis-rs shows them: a number in one form, and what is no UTF-8 replaced. This crate keeps what was sent.
fn shown(value: Value) -> Value {
    match value {
        Value::Text(text) => {
            let text = String::from_utf8_lossy(&text);
            let number = text.trim().parse::<f64>().ok();
            Value::Text(
                number
                    .map_or(text.into_owned(), |number| number.to_string())
                    .into(),
            )
        }
        Value::List(values) => Value::List(values.into_iter().map(shown).collect()),
        other => other,
    }
}
