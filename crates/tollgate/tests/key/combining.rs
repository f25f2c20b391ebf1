//! Tuples and alternatives.

use tollgate::{
    Head,
    key::{Extracted, KeyBuf, KeyExtractor, NoKey, PartKind, client_ip, constant, header},
};

use crate::support::{empty, from, key, parts, with_lines};

const CONSTANT: PartKind = PartKind::CONSTANT;

/// Adds a part, and then finds out that there is no key.
struct Careless;

impl KeyExtractor for Careless {
    fn extract(&self, _: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        key.push(PartKind::VALUE, "left behind");
        Extracted::Nothing(NoKey::Absent)
    }
}

fn misconfigured() -> impl KeyExtractor {
    header("not a name")
}

#[test]
fn a_tuple_is_one_key_of_all_parts_in_their_order() {
    let ab = parts([(CONSTANT, "a"), (CONSTANT, "b")]);
    assert_eq!(
        key(&(constant("a"), constant("b")), &empty()),
        Ok(ab.clone())
    );
    assert_ne!(key(&(constant("b"), constant("a")), &empty()), Ok(ab));
    assert_eq!(
        key(&(constant("a"),), &empty()),
        Ok(parts([(CONSTANT, "a")]))
    );
    let six = (
        constant("a"),
        constant("b"),
        constant("c"),
        constant("d"),
        constant("e"),
        constant("f"),
    );
    let expected = ["a", "b", "c", "d", "e", "f"].map(|part| (CONSTANT, part));
    assert_eq!(key(&six, &empty()), Ok(parts(expected)));
}

#[test]
fn a_tuple_with_a_missing_part_has_no_key_and_leaves_nothing() {
    let mut found = KeyBuf::new();
    let by = (constant("a"), header("x-api-key"));
    assert!(matches!(
        by.extract(&Head::from(&empty()), &mut found),
        Extracted::Nothing(NoKey::Absent)
    ));
    assert!(found.is_empty());

    let nested = (constant("a"), (constant("b"), Careless).or(constant("c")));
    let expected = parts([(CONSTANT, "a"), (CONSTANT, "c")]);
    assert_eq!(key(&nested, &empty()), Ok(expected));
}

#[test]
fn or_takes_the_first_that_finds_a_key() {
    let by = header("x-api-key").or(header("x-user")).or(constant("all"));
    let head = with_lines("x-user", &["ada"]);
    assert_eq!(key(&by, &head), key(&header("x-user"), &head));
    assert_eq!(key(&by, &empty()), Ok(parts([(CONSTANT, "all")])));
}

#[test]
fn or_falls_back_from_an_ambiguous_key_and_keeps_the_reason() {
    let twice = with_lines("x-api-key", &["k-1", "k-2"]);
    let by = header("x-api-key").or(constant("all"));
    assert_eq!(key(&by, &twice), Ok(parts([(CONSTANT, "all")])));
    assert_eq!(
        key(&header("x-api-key").or(header("x-user")), &twice),
        Err(NoKey::Ambiguous)
    );
    assert_eq!(
        key(&header("x-user").or(header("x-api-key")), &twice),
        Err(NoKey::Ambiguous)
    );
}

#[test]
fn or_falls_back_from_a_misconfigured_service_and_keeps_the_reason() {
    assert!(key(&misconfigured().or(constant("all")), &empty()).is_ok());
    for found in [
        key(&misconfigured().or(header("x-user")), &empty()),
        key(&header("x-user").or(misconfigured()), &empty()),
        key(&header("x-user").or(client_ip()), &empty()),
    ] {
        assert!(matches!(found, Err(NoKey::Misconfigured(_))), "{found:?}");
    }
}

#[test]
fn a_key_spelled_like_an_address_is_not_that_address() {
    let by = header("x-api-key").or(client_ip());
    let address = key(&by, &from("192.0.2.1", empty())).expect("there is a peer");
    let forged: [&[u8]; 3] = [b"192.0.2.1", b"\xc0\x80\x80\x81", b"192.0.2.1/32"];
    for spelled in forged {
        let head = from("192.0.2.1", with_lines("x-api-key", &[spelled]));
        assert_ne!(key(&by, &head), Ok(address.clone()));
    }
}
