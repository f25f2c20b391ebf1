//! Parameters of the query.

use tollgate::key::{NoKey, PartKind, query};

use crate::support::{key, parts, with_uri};

#[test]
fn one_value_has_one_key_however_it_is_spelled() {
    for (uri, value) in [
        ("/?token=abc", "abc"),
        ("/?token=%61bc", "abc"),
        ("/?%74oken=abc", "abc"),
        ("/?a=1&token=abc&b=2", "abc"),
        ("/?&&token=abc&", "abc"),
        ("/?token=a+b", "a b"),
        ("/?token=a%20b", "a b"),
        ("/?token=a%2Bb", "a+b"),
        ("/?token=a=b", "a=b"),
        ("/?token=a;b", "a;b"),
        ("/?token=%", "%"),
        ("/?token=%6", "%6"),
        ("/?token=%zz", "%zz"),
    ] {
        let kind = PartKind::QUERY_PARAMETER;
        let expected = parts([(kind, "token"), (kind, value)]);
        assert_eq!(key(&query("token"), &with_uri(uri)), Ok(expected), "{uri}");
    }
}

#[test]
fn an_empty_or_missing_parameter_is_no_key() {
    for uri in [
        "/",
        "/?",
        "/?token",
        "/?token=",
        "/?Token=abc",
        "/?tokens=abc",
        "/?x=token=abc",
    ] {
        assert_eq!(
            key(&query("token"), &with_uri(uri)),
            Err(NoKey::Absent),
            "{uri}"
        );
    }
}

#[test]
fn a_repeated_parameter_is_ambiguous_in_any_spelling() {
    for uri in [
        "/?token=a&token=b",
        "/?token=a&token=a",
        "/?token=a&%74oken=b",
        "/?token&token=a",
    ] {
        assert_eq!(
            key(&query("token"), &with_uri(uri)),
            Err(NoKey::Ambiguous),
            "{uri}"
        );
    }
}
