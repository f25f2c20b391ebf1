//! Keys that come later.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::request::Parts;
use tollgate::{
    KeyBuf, PartKind,
    decision::Pending,
    key::{Extracted, KeyExtractor, KeyExtractorExt, NoKey, constant, header, key_fn, look_up},
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
fn a_look_up_finds_a_key_or_none() {
    let called = Arc::default();
    let ada = with_lines("x-user", &["ada"]);
    assert_eq!(
        key_later(&slow(&called), &ada),
        Ok(parts([(LOOK_UP, "ada")]))
    );
    assert_eq!(key_later(&slow(&called), &empty()), Err(NoKey::Absent));
}

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
fn a_tuple_without_an_answer_from_its_look_up_has_no_key() {
    let called = Arc::default();
    let by = (constant("a"), slow(&called), constant("b"));
    assert_eq!(key_later(&by, &empty()), Err(NoKey::Absent));
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

#[test]
fn or_keeps_the_more_severe_reason_across_look_ups() {
    let called = Arc::default();
    for found in [
        key_later(&misconfigured().or(slow(&called)), &empty()),
        key_later(&slow(&called).or(misconfigured()), &empty()),
        key_later(
            &slow(&called).or(misconfigured()).or(slow(&called)),
            &empty(),
        ),
    ] {
        assert!(matches!(found, Err(NoKey::Misconfigured(_))), "{found:?}");
    }
}

#[test]
fn or_inside_of_a_tuple_waits_for_its_look_ups() {
    let called = Arc::default();
    let by = (
        constant("a"),
        slow(&called).or(constant("b")),
        constant("c"),
    );
    let expected = parts([(CONSTANT, "a"), (CONSTANT, "b"), (CONSTANT, "c")]);
    assert_eq!(key_later(&by, &empty()), Ok(expected));
}

#[test]
fn a_closure_in_a_tuple_runs_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let closure = key_fn(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Some("x")
    });
    let called = Arc::default();
    let ada = with_lines("x-user", &["ada"]);
    assert!(key_later(&(constant("a"), (closure, slow(&called))), &ada).is_ok());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// Adds a part, and then gives another key later.
struct Careless;

impl KeyExtractor for Careless {
    fn extract(&self, _: &Parts, key: &mut KeyBuf) -> Extracted {
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
