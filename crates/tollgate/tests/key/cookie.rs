//! Cookies.

use tollgate::key::{NoKey, PartKind, cookie};

use crate::support::{key, parts, with_lines};

#[test]
fn one_session_has_one_key_however_it_is_spelled() {
    for lines in [
        &["session=abc"][..],
        &["a=1; session=abc; b=2"],
        &["a=1", "session=abc"],
        &["a=1;session=abc"],
        &[" session = abc ;"],
        &["session=\"abc\""],
        &["session=%61bc"],
        &["session=%22abc%22"],
        &["%73ession=abc"],
        &["session; session=abc"],
    ] {
        let expected = parts([(PartKind::COOKIE, "session"), (PartKind::COOKIE, "abc")]);
        let head = with_lines("cookie", lines);
        assert_eq!(key(&cookie("session"), &head), Ok(expected), "{lines:?}");
    }
}

#[test]
fn an_empty_or_missing_cookie_is_no_key() {
    for line in [
        "",
        ";",
        "session",
        "session=",
        "session=\"\"",
        "Session=abc",
        "xsession=abc",
        "a=session=abc",
    ] {
        let head = with_lines("cookie", &[line]);
        assert_eq!(key(&cookie("session"), &head), Err(NoKey::Absent), "{line}");
    }
}

#[test]
fn a_repeated_cookie_is_ambiguous() {
    for lines in [
        &["session=a; session=b"][..],
        &["session=a", "session=b"],
        &["session=a; session=a"],
        &["session=a; %73ession=b"],
        &["session=; session=b"],
    ] {
        let head = with_lines("cookie", lines);
        assert_eq!(
            key(&cookie("session"), &head),
            Err(NoKey::Ambiguous),
            "{lines:?}"
        );
    }
}

#[test]
fn a_plus_is_a_plus() {
    let by = |line| key(&cookie("session"), &with_lines("cookie", &[line]));
    assert_eq!(by("session=a%2Bb"), by("session=a+b"));
    assert_ne!(by("session=a%20b"), by("session=a+b"));
}
