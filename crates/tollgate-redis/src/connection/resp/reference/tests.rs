//! Random replies, whole and damaged, and commands compared with those that redis-rs writes.

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*, sample::Index};
use redis::{pack_command, parse_redis_value};

use crate::connection::{
    command::{Command, Script, push_argument, push_count},
    resp::reference::{compare, in_our_words, ours, shown},
};

/// A reply as a server writes it.
fn reply() -> impl Strategy<Value = Vec<u8>> {
    let bulk = vec(any::<u8>(), 0..12).prop_map(|text| {
        let head = format!("${}\r\n", text.len()).into_bytes();
        [&head, &text[..], b"\r\n"].concat()
    });
    let leaf = prop_oneof![
        any::<i64>().prop_map(|integer| format!(":{integer}\r\n").into()),
        "[ -~]{0,9}".prop_map(|line| format!("+{line}\r\n").into()),
        Just(b"+OK\r\n".to_vec()),
        "[A-Z]{1,9}( [ -~]{1,9})?".prop_map(|line| format!("-{line}\r\n").into()),
        bulk,
        Just(b"$-1\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        vec(inner, 0..5).prop_map(|values| {
            let head = format!("*{}\r\n", values.len()).into_bytes();
            [head, values.concat()].concat()
        })
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
        let ours = ours(&bytes).map(|read| read.map(|(value, length)| (shown(value), length)));
        prop_assert_eq!(ours, Ok(Some((theirs, bytes.len()))), "{}", bytes.escape_ascii());
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
    ) {
        let mut ours = Vec::new();
        push_count(&mut ours, 1 + keys.len());
        push_argument(&mut ours, b"SET");
        keys.iter().for_each(|key| push_argument(&mut ours, key));
        let head = vec![b"SET".to_vec()];
        prop_assert_eq!(ours, pack_command(&[head, keys.clone()].concat()));

        static SCRIPT: Script = Script::new("return 1");
        for with_body in [false, true] {
            let mut ours = Vec::new();
            let command = Command::new(&SCRIPT, &keys, &args);
            Command::write_all([&command].into_iter(), with_body, &mut ours);
            let head = if with_body {
                vec![b"EVAL".to_vec(), b"return 1".to_vec()]
            } else {
                vec![b"EVALSHA".to_vec(), SCRIPT.sha().into()]
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
