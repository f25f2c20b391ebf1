//! What a process does about slots, and when: what the model leaves open, which sends messages at any time.

use tollgate_core::{Tick, store::Fingerprint};
use tollgate_prefilter::{SlotHolder, SlotKey, SlotOwner, SlotStart, SlotTable, SlotTerms};
use tollgate_test_reference::{SlotGrantor, SlotState};

const TERM: Tick = 15_000_000;
const NOW: Tick = 1_700_000_000_000_000;

fn terms() -> SlotTerms {
    SlotTerms::new(TERM)
}

/// A process with one request that runs, and the store.
fn running() -> (SlotHolder, SlotState) {
    let (mut holder, mut state) = (SlotHolder::new(SlotOwner(1)), SlotState::default());
    let message = holder.acquire(1, 1, NOW, &terms());
    let reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &message);
    let start = holder.on_acquired(&message, &reply, NOW, NOW, &terms());
    assert!(matches!(start, SlotStart::Started { .. }));
    (holder, state)
}

#[test]
fn an_owner_that_lives_survives_one_renewal_that_is_lost_and_not_two() {
    let grantor = SlotGrantor::new(1, TERM);
    let second = 1_000_000;
    for lost in 0..3 {
        for delay in 0..15 {
            let (mut holder, mut state) = running();
            let due = holder.renew_at().expect("a request runs");
            assert_eq!(due, NOW + TERM / 3);
            let sent = due + lost * TERM / 3;
            let message = holder.renew(2, sent, &terms());
            let reply = grantor.decide(&mut state, sent + delay * second, &message);
            let survives = TERM / 3 * (lost + 1) + delay * second < TERM;
            assert_eq!(reply.is_new, !survives, "{lost} lost, {delay} s on its way");
            holder.on_renewed(&message, &reply, sent + delay * second, &terms());
            assert_eq!(holder.is_outlived(1), !survives);
            // It occupies its slot again.
            assert_eq!(grantor.used(&state, sent + delay * second), 1);
        }
    }
}

#[test]
fn an_end_that_is_hidden_by_acquires_in_flight_is_reported_when_they_are_answered_or_soon() {
    let grantor = SlotGrantor::new(1, TERM);
    let (mut holder, mut state) = running();
    let first = holder.acquire(2, 1, NOW, &terms());
    let _denied = grantor.decide(&mut state, NOW, &first);
    holder.end(1, NOW, &terms());
    // It would void an acquire in flight, which is not held up for that.
    assert_eq!(holder.renew_at(), Some(NOW + terms().patience()));
    let second = holder.acquire(3, 1, NOW, &terms());
    let denied = grantor.decide(&mut state, NOW, &second);
    for message in [first, second] {
        let start = holder.on_acquired(&message, &denied, NOW, NOW, &terms());
        assert_eq!(start, SlotStart::Denied { free: 0 });
    }
    // It might be the first one's, for all that the store knows.
    assert_eq!((holder.running(), grantor.used(&state, NOW)), (0, 1));
    assert_eq!(holder.renew_at(), Some(NOW));
    let message = holder.renew(4, NOW, &terms());
    grantor.decide(&mut state, NOW, &message);
    assert_eq!(grantor.used(&state, NOW), 0);
}

#[test]
fn an_end_is_reported_although_an_earlier_message_is_answered_after_it() {
    let (mut holder, mut state) = running();
    let message = holder.renew(2, NOW, &terms());
    holder.end(1, NOW, &terms());
    let reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &message);
    holder.on_renewed(&message, &reply, NOW, &terms());
    assert_eq!(holder.renew_at(), Some(NOW));
}

#[test]
fn an_exact_message_that_a_later_one_has_overtaken_is_said_again() {
    let grantor = SlotGrantor::new(1, TERM);
    let (mut holder, mut state) = running();
    holder.end(1, NOW, &terms());
    let first = holder.acquire(2, 1, NOW, &terms());
    let second = holder.acquire(3, 1, NOW, &terms());
    assert!(first.is_exact && !second.is_exact);
    for message in [second, first] {
        let reply = grantor.decide(&mut state, NOW, &message);
        let _ = holder.on_acquired(&message, &reply, NOW, NOW, &terms());
    }
    // The second has hidden the end, and the first, which says it, came too late.
    assert_eq!((holder.running(), grantor.used(&state, NOW)), (0, 1));
    assert_eq!(holder.renew_at(), Some(NOW));
}

#[test]
fn a_grant_that_came_too_late_goes_back_at_once() {
    let (mut holder, mut state) = (SlotHolder::new(SlotOwner(1)), SlotState::default());
    let message = holder.acquire(1, 1, NOW, &terms());
    let mut reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &message);
    // Before its renewal is due.
    reply.left = TERM / 6;
    let late = terms().deadline(NOW, reply.left);
    let _again = holder.on_acquired(&message, &reply, NOW, late, &terms());
    assert_eq!(holder.renew_at(), Some(late));
}

fn table() -> SlotTable<()> {
    SlotTable::new(SlotOwner(7), SlotTerms::new(TERM))
}

fn key() -> SlotKey {
    SlotKey {
        key: Fingerprint::from_bits(1),
        rule: "exports".into(),
        place: None,
    }
}

/// A request that runs with so many slots of ten: their number.
fn start(table: &mut SlotTable<()>, state: &mut SlotState, slots: u32, now: Tick) -> u64 {
    let message = table.acquire(&key(), (), slots, now);
    let reply = SlotGrantor::new(10, TERM).decide(state, now, &message);
    match table.on_acquired(&key(), &message, &reply, (now, now)) {
        SlotStart::Started { fence } => fence,
        other => panic!("{other:?}"),
    }
}

fn end(table: &mut SlotTable<()>, number: u64, slots: u32) {
    table.end("exports", key().key, number, slots, NOW);
}

/// Tells the store what is due.
fn tell(table: &mut SlotTable<()>, state: &mut SlotState, now: Tick) -> usize {
    let messages = table.poll(now, 9);
    for (key, (), message) in &messages {
        let reply = SlotGrantor::new(10, TERM).decide(state, now, message);
        table.on_renewed(key, message, &reply, now);
    }
    messages.len()
}

#[test]
fn keys_are_kept_while_the_store_may_know_of_them_and_renewed_in_one_go() {
    let (mut table, mut state) = (table(), SlotState::default());
    let number = start(&mut table, &mut state, 1, NOW);
    assert_eq!(
        (table.due_at(), table.is_reported()),
        (Some(NOW + TERM / 3), true)
    );
    assert_eq!(tell(&mut table, &mut state, NOW + TERM / 3 - 1), 0);
    assert_eq!(tell(&mut table, &mut state, NOW + TERM / 3), 1);
    assert_eq!(table.due_at(), Some(NOW + 2 * (TERM / 3)));
    end(&mut table, number, 1);
    assert!(!table.is_reported() && !table.is_empty());
    assert_eq!(tell(&mut table, &mut state, NOW + TERM / 3), 1);
    assert!(table.is_reported() && table.is_empty());
    assert_eq!((table.due_at(), table.counts().renewals), (None, 2));
}

#[test]
fn a_key_that_cannot_be_reported_of_is_tried_again_soon_and_forgotten_after_two_terms() {
    let (mut table, mut state) = (table(), SlotState::default());
    let number = start(&mut table, &mut state, 1, NOW);
    end(&mut table, number, 1);
    let mut tries = 0;
    let mut now = NOW;
    while let Some(at) = table.due_at() {
        now = at;
        for (key, ..) in table.poll(now, 9) {
            tries += 1;
            table.on_lost(&key, now);
        }
    }
    assert!(table.is_empty() && tries == 61, "{tries}");
    assert_eq!(now, NOW + 2 * TERM + TERM / 30);
}

#[test]
fn a_grant_that_a_renewal_has_voided_is_counted_and_not_used() {
    let (mut table, mut state) = (table(), SlotState::default());
    start(&mut table, &mut state, 1, NOW);
    let number = start(&mut table, &mut state, 1, NOW);
    let message = table.acquire(&key(), (), 2, NOW);
    let granted = SlotGrantor::new(10, TERM).decide(&mut state, NOW, &message);
    end(&mut table, number, 1);
    let later = NOW + SlotTerms::new(TERM).patience();
    assert_eq!(tell(&mut table, &mut state, later), 1);
    let start = table.on_acquired(&key(), &message, &granted, (NOW, later));
    assert_eq!(start, SlotStart::Again);
    assert_eq!((table.counts().voided, table.in_use()), (1, (1, 1)));
    // One that was denied is none.
    let message = table.acquire(&key(), (), 11, later);
    let denied = SlotGrantor::new(10, TERM).decide(&mut state, later, &message);
    let start = table.on_acquired(&key(), &message, &denied, (later, later));
    assert_eq!(start, SlotStart::Denied { free: 9 });
    assert_eq!(table.counts().voided, 1);
}

#[test]
fn no_more_messages_are_sent_at_once_than_may_be() {
    let mut table = table();
    for bits in 1..=3 {
        let key = SlotKey {
            key: Fingerprint::from_bits(bits),
            ..key()
        };
        let _ = table.acquire(&key, (), 1, NOW);
    }
    let sent = [2, 2, 2].map(|most| table.poll(NOW + TERM / 3, most).len());
    assert_eq!(sent, [2, 1, 0]);
}

#[test]
fn requests_that_were_outlived_are_counted_when_a_renewal_says_so_and_once() {
    let (mut table, mut state) = (table(), SlotState::default());
    start(&mut table, &mut state, 1, NOW);
    let mut now = NOW;
    for (forgets, outlived) in [(true, 1), (false, 1), (true, 1)] {
        now += TERM / 3;
        if forgets {
            state = SlotState::default();
        }
        assert_eq!(tell(&mut table, &mut state, now), 1);
        assert_eq!(table.counts().outlived, outlived);
    }
}
