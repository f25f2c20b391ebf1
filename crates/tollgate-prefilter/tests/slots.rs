//! What a process does about slots, and when: what the model in `model/slots/` leaves open, which sends messages at any time.

use tollgate_core::{Tick, store::Fingerprint};
use tollgate_prefilter::{
    SlotHolder, SlotKey, SlotOutcome, SlotOwner, SlotStart, SlotTable, SlotTerms,
};
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
fn what_becomes_of_a_void_acquire_leaves_those_after_it_as_they_are() {
    let grantor = SlotGrantor::new(9, TERM);
    for case in 0..3 {
        let (mut holder, mut state) = running();
        let void = holder.acquire(2, 1, NOW, &terms());
        let granted = grantor.decide(&mut state, NOW, &void);
        let renewal = holder.renew(3, NOW + 5, &terms());
        assert!(holder.is_void(&void) && !holder.is_void(&renewal));
        let due = NOW + 5 + TERM / 3;
        assert_eq!(holder.renew_at(), Some(due));
        if case == 0 {
            // Nor is the renewal taken back.
            let mut early = holder;
            early.not_sent(&void, NOW + 5);
            assert_eq!(early.renew_at(), Some(due));
        }
        let next = holder.acquire(4, 2, NOW + 6, &terms());
        assert!(next.is_exact && holder.is_in_use());
        match case {
            0 => {
                let start = holder.on_acquired(&void, &granted, NOW, NOW + 5, &terms());
                assert_eq!(start, SlotStart::Again);
            }
            1 => holder.give_up(&void, NOW + 5, &terms()),
            _ => holder.not_sent(&void, NOW + 5),
        }
        if case != 1 {
            assert_eq!(holder.renew_at(), Some(due + 1));
            let mut without = holder;
            without.not_sent(&next, NOW + 6);
            assert_eq!(without.renew_at(), Some(due));
        }
        let last = holder.acquire(5, 1, NOW + 6, &terms());
        assert_eq!((last.lo, last.hi, last.is_exact), (1, 3, false), "{case}");
    }
}

#[test]
fn an_acquire_of_more_than_ever_fits_hides_none_in_flight() {
    let mut holder = SlotHolder::new(SlotOwner(1));
    let most = holder.acquire(1, u32::MAX, NOW, &terms());
    let one = holder.acquire(2, 1, NOW, &terms());
    assert_eq!((one.hi, one.is_exact), (u32::MAX, false));
    holder.not_sent(&most, NOW);
    assert!(holder.is_in_use());
    holder.not_sent(&one, NOW);
    assert!(!holder.is_listed());
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

#[test]
fn grants_have_numbers_that_grow_over_a_time_in_which_nothing_is_kept() {
    let grantor = SlotGrantor::new(2, TERM);
    let fence = |state: &mut SlotState, now| {
        let mut holder = SlotHolder::new(SlotOwner(fastrand::u64(..)));
        let message = holder.acquire(1, 1, now, &terms());
        match grantor.decide(state, now, &message).outcome {
            SlotOutcome::Granted { fence } => fence,
            other => panic!("{other:?}"),
        }
    };
    let mut state = SlotState::default();
    let first = fence(&mut state, NOW);
    let second = fence(&mut state, NOW);
    let third = fence(&mut SlotState::default(), NOW + TERM);
    assert!(first < second && second < third);
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
fn slots_go_back_once_and_in_parts() {
    let (mut table, mut state) = (table(), SlotState::default());
    let other = start(&mut table, &mut state, 4, NOW);
    let number = start(&mut table, &mut state, 3, NOW);
    for (slots, left) in [(1, 6), (2, 4), (1, 4), (9, 4)] {
        end(&mut table, number, slots);
        tell(&mut table, &mut state, NOW);
        assert_eq!(SlotGrantor::new(10, TERM).used(&state, NOW), left);
    }
    table.end("imports", key().key, other, 4, NOW);
    assert_eq!(table.in_use(), (4, 1));
}

#[test]
fn slots_go_back_in_whatever_order_their_grants_are_answered() {
    let (mut table, mut state) = (table(), SlotState::default());
    let messages = [(); 5].map(|()| table.acquire(&key(), (), 1, NOW));
    let replies = messages.map(|message| {
        let reply = SlotGrantor::new(10, TERM).decide(&mut state, NOW, &message);
        (message, reply)
    });
    let mut numbers = Vec::new();
    for index in [3, 0, 4, 2, 1] {
        let (message, reply) = replies[index];
        match table.on_acquired(&key(), &message, &reply, (NOW, NOW)) {
            SlotStart::Started { fence } => numbers.push(fence),
            other => panic!("{other:?}"),
        }
    }
    for number in numbers {
        end(&mut table, number, 1);
    }
    tell(&mut table, &mut state, NOW);
    assert_eq!(SlotGrantor::new(10, TERM).used(&state, NOW), 0);
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
fn acquires_that_were_not_sent_leave_nothing_behind() {
    let mut table = table();
    let one = table.acquire(&key(), (), 1, NOW);
    table.not_sent(&key(), &one, NOW);
    assert!(table.is_empty() && table.due_at().is_none());
    for first in [0, 1] {
        let messages = [(); 2].map(|()| table.acquire(&key(), (), 1, NOW));
        table.not_sent(&key(), &messages[first], NOW);
        let third = table.acquire(&key(), (), 1, NOW);
        table.not_sent(&key(), &messages[1 - first], NOW);
        assert!(!table.is_empty());
        table.not_sent(&key(), &third, NOW);
        assert!(table.is_empty() && table.due_at().is_none());
    }
    // Nor do they keep the store from being told of what runs.
    let mut state = SlotState::default();
    start(&mut table, &mut state, 1, NOW);
    for later in 1..10 {
        let message = table.acquire(&key(), (), 1, NOW + later);
        table.not_sent(&key(), &message, NOW + later);
    }
    assert_eq!(table.due_at(), Some(NOW + TERM / 3));
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
fn requests_that_outlive_what_the_store_knows_are_counted_and_recognised() {
    let (mut table, mut state) = (table(), SlotState::default());
    let number = start(&mut table, &mut state, 1, NOW);
    let is_outlived = |table: &SlotTable<()>| table.is_outlived("exports", key().key, number);
    assert!(!is_outlived(&table));
    state = SlotState::default();
    let second = start(&mut table, &mut state, 1, NOW + 1);
    assert!(is_outlived(&table) && !table.is_outlived("exports", key().key, second));
    assert_eq!(table.counts().outlived, 1);
    // They occupy their slots again.
    assert_eq!(SlotGrantor::new(10, TERM).used(&state, NOW + 1), 2);
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
fn messages_reach_the_store_as_the_last_request_has_said() {
    let mut table = SlotTable::new(SlotOwner(7), SlotTerms::new(TERM));
    let _first = table.acquire(&key(), 'a', 1, NOW);
    let _second = table.acquire(&key(), 'b', 1, NOW);
    let due = NOW + TERM / 3;
    assert_eq!(table.due_at(), Some(due));
    let targets: Vec<_> = table.poll(due, 9).into_iter().map(|it| it.1).collect();
    assert_eq!((targets, table.due_at()), (vec!['b'], Some(due + TERM / 3)));
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

#[test]
fn a_key_in_use_is_kept_however_long_the_store_is_away() {
    let (mut table, mut state) = (table(), SlotState::default());
    start(&mut table, &mut state, 1, NOW);
    while let Some(at) = table.due_at().filter(|at| *at < NOW + 4 * TERM) {
        let messages = table.poll(at, 9);
        assert_eq!(messages.len(), 1);
        table.on_lost(&messages[0].0, at);
    }
    assert_eq!(table.in_use(), (1, 1));
}
