//! Random replies, whole and damaged, and commands compared with those that redis-rs writes.

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*, sample::Index};
use redis::{pack_command, parse_redis_value};

use crate::connection::{
    command::{push_argument, push_count, push_number},
    request::Request,
    resp::reference::{compare, in_our_words, ours},
    script::Script,
};

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
        let pairs = vec((inner.clone(), inner), 0..4);
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
            2 => pairs.prop_map(|(count, values)| {
                [format!("%{count}\r\n").into_bytes(), values].concat()
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
        if let Err(difference) = compare(&bytes) {
            prop_assert!(false, "{difference}");
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

#[test]
fn the_seeds_of_the_fuzz_target_are_read_alike() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/replies");
    let mut read = 0;
    for seed in fs::read_dir(seeds).expect("a folder") {
        let bytes = fs::read(seed.expect("a file").path()).expect("a file");
        assert_eq!(compare(&bytes), Ok(()));
        read += 1;
    }
    assert!(read > 20);
}
