//! Keys that come later.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tollgate::{
    Head,
    decision::Pending,
    key::{Extracted, KeyBuf, KeyExtractor, NoKey, PartKind, constant, header, look_up},
};

use crate::support::{empty, key_later, parts, with_lines};

/// Finds the value of `x-user` after a few polls, and counts how often it was asked.
fn slow(called: &Arc<AtomicUsize>) -> impl KeyExtractor {
    let called = called.clone();
    look_up(move |head| {
        let user = head.headers.get("x-user").cloned();
        let called = called.clone();
        async move {
            called.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            user
        }
    })
}

fn misconfigured() -> impl KeyExtractor {
    header("not a name")
}

const LOOK_UP: PartKind = PartKind::LOOK_UP;
const CONSTANT: PartKind = PartKind::CONSTANT;

#[test]
fn a_tuple_keeps_its_order_around_look_ups() {
    let called = Arc::default();
    let ada = with_lines("x-user", &["ada"]);
    let (a, b, user) = ((CONSTANT, "a"), (CONSTANT, "b"), (LOOK_UP, "ada"));

    let first = (slow(&called), constant("a"));
    assert_eq!(key_later(&first, &ada), Ok(parts([user, a])));
    let middle = (constant("a"), slow(&called), constant("b"));
    assert_eq!(key_later(&middle, &ada), Ok(parts([a, user, b])));
    let twice = (constant("a"), slow(&called), constant("b"), slow(&called));
    assert_eq!(key_later(&twice, &ada), Ok(parts([a, user, b, user])));
    let nested = (
        constant("a"),
        (constant("b"), (slow(&called), constant("a"))),
        constant("b"),
    );
    assert_eq!(key_later(&nested, &ada), Ok(parts([a, b, user, a, b])));
}

#[test]
fn a_look_up_does_not_start_if_another_part_is_missing() {
    let called = Arc::new(AtomicUsize::new(0));
    let ada = with_lines("x-user", &["ada"]);
    let by = (slow(&called), header("x-api-key"));
    assert_eq!(crate::support::key(&by, &ada), Err(NoKey::Absent));
    assert_eq!(called.load(Ordering::Relaxed), 0);
}

#[test]
fn or_falls_back_when_a_look_up_ends_in_nothing() {
    let called = Arc::default();
    let by = slow(&called).or(constant("a"));
    assert_eq!(key_later(&by, &empty()), Ok(parts([(CONSTANT, "a")])));
    let ada = with_lines("x-user", &["ada"]);
    assert_eq!(key_later(&by, &ada), Ok(parts([(LOOK_UP, "ada")])));
}

#[test]
fn or_falls_back_to_a_look_up_and_starts_it_only_then() {
    let (first, second) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let by = slow(&first).or(slow(&second));
    let ada = with_lines("x-user", &["ada"]);
    assert!(key_later(&by, &ada).is_ok());
    assert_eq!(
        (
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed)
        ),
        (1, 0)
    );
    assert_eq!(key_later(&by, &empty()), Err(NoKey::Absent));
    assert_eq!(
        (
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed)
        ),
        (2, 1)
    );
}

/// Adds a part, and then gives another key later.
struct Careless;

impl KeyExtractor for Careless {
    fn extract(&self, _: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        key.push(PartKind::VALUE, "left behind");
        Extracted::Later(Pending::new(async { Ok(parts([(CONSTANT, "later")])) }))
    }
}

#[test]
fn parts_added_before_a_look_up_are_removed() {
    let (a, later) = ((CONSTANT, "a"), (CONSTANT, "later"));
    let in_a_tuple = (constant("a"), Careless);
    assert_eq!(key_later(&in_a_tuple, &empty()), Ok(parts([a, later])));
    let in_an_alternative = (
        constant("a"),
        misconfigured().or(Careless).or(constant("b")),
    );
    assert_eq!(
        key_later(&in_an_alternative, &empty()),
        Ok(parts([a, later]))
    );
}
