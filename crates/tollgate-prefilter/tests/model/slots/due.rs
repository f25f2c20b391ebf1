//! What a process does about slots, and when: what the model leaves open, which sends messages at any time.

use std::sync::Arc;

use tollgate_core::{Check, Tick, store::Fingerprint};
use tollgate_prefilter::{
    Engine, EngineEvent, NoReply, SlotHolder, SlotKey, SlotMessage, SlotOutcome, SlotOwner,
    SlotTarget, SlotTerms,
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
    assert!(matches!(start, SlotOutcome::Granted { .. }));
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
    assert_eq!(holder.renew_at(), Some(NOW + terms().patience));
    let second = holder.acquire(3, 1, NOW, &terms());
    let denied = grantor.decide(&mut state, NOW, &second);
    for message in [first, second] {
        let start = holder.on_acquired(&message, &denied, NOW, NOW, &terms());
        assert_eq!(start, SlotOutcome::Denied);
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

fn engine() -> Arc<Engine> {
    Engine::new(Engine::KEYS, true, terms())
}

fn key(bits: u128) -> SlotKey {
    SlotKey {
        key: Fingerprint::from_bits(bits),
        rule: "exports".into(),
        place: None,
    }
}

fn acquire(engine: &Engine, key: &SlotKey, slots: u32, now: Tick) -> Option<SlotMessage> {
    let target = SlotTarget {
        encoder: Arc::new(()),
        check: Check::new(0, key.key, 1),
    };
    engine.slots().acquire(key, target, slots, now)
}

/// A request that runs with so many slots of ten: their number.
fn start(engine: &Engine, state: &mut SlotState, slots: u32, now: Tick) -> u64 {
    let message = acquire(engine, &key(1), slots, now).expect("there is room");
    let reply = SlotGrantor::new(10, TERM).decide(state, now, &message);
    let start = engine
        .slots()
        .on_acquired(&key(1), &message, Ok(reply), now, now);
    match start {
        Some(SlotOutcome::Granted { fence }) => fence,
        other => panic!("{other:?}"),
    }
}

fn end(engine: &Engine, number: u64, slots: u32) {
    let key = key(1).key;
    engine
        .slots()
        .end_request("exports", key, number, slots, NOW);
}

/// Tells the store what is due.
fn tell(engine: &Engine, state: &mut SlotState, now: Tick) -> usize {
    let messages = engine.slots().poll(now, 9);
    for (key, _, message) in &messages {
        let reply = SlotGrantor::new(10, TERM).decide(state, now, message);
        engine.slots().on_renewed(key, message, Some(&reply), now);
    }
    messages.len()
}

fn slots_in_use(engine: &Engine) -> u64 {
    engine.usage(NOW).slots_in_use
}

#[test]
fn keys_are_kept_while_the_store_may_know_of_them_and_renewed_in_one_go() {
    let (engine, mut state) = (engine(), SlotState::default());
    let number = start(&engine, &mut state, 1, NOW);
    assert_eq!(engine.slots().rest(), Some(NOW + TERM / 3));
    assert!(engine.slots().is_reported());
    assert_eq!(tell(&engine, &mut state, NOW + TERM / 3 - 1), 0);
    assert_eq!(tell(&engine, &mut state, NOW + TERM / 3), 1);
    assert_eq!(engine.slots().rest(), Some(NOW + 2 * (TERM / 3)));
    end(&engine, number, 1);
    assert!(!engine.slots().is_reported());
    assert_eq!(tell(&engine, &mut state, NOW + TERM / 3), 1);
    assert!(engine.slots().is_reported());
    assert_eq!(
        (
            engine.slots().rest(),
            engine.counts()[EngineEvent::SlotsReported as usize]
        ),
        (None, 2)
    );
}

#[test]
fn a_key_that_cannot_be_reported_of_is_tried_again_soon_and_forgotten_after_two_terms() {
    let (engine, mut state) = (engine(), SlotState::default());
    let number = start(&engine, &mut state, 1, NOW);
    end(&engine, number, 1);
    let mut tries = 0;
    let mut now = NOW;
    loop {
        let due_at = engine.slots().rest();
        let Some(at) = due_at else { break };
        now = at;
        let messages = engine.slots().poll(now, 9);
        for (key, _, message) in messages {
            tries += 1;
            engine.slots().on_renewed(&key, &message, None, now);
        }
    }
    assert_eq!((tries, now), (61, NOW + 2 * TERM + TERM / 30));
}

#[test]
fn a_grant_that_a_renewal_has_voided_is_counted_and_not_used() {
    let (engine, mut state) = (engine(), SlotState::default());
    start(&engine, &mut state, 1, NOW);
    let number = start(&engine, &mut state, 1, NOW);
    let message = acquire(&engine, &key(1), 2, NOW).expect("there is room");
    let granted = SlotGrantor::new(10, TERM).decide(&mut state, NOW, &message);
    end(&engine, number, 1);
    let later = NOW + terms().patience;
    assert_eq!(tell(&engine, &mut state, later), 1);
    let on_acquired = |message, reply, sent| {
        let mut slots = engine.slots();
        slots.on_acquired(&key(1), message, Ok(reply), sent, later)
    };
    assert_eq!(
        on_acquired(&message, granted, NOW),
        Some(SlotOutcome::Stale)
    );
    assert_eq!(
        (
            engine.counts()[EngineEvent::SlotsVoided as usize],
            slots_in_use(&engine)
        ),
        (1, 1)
    );
    // One that was denied is none.
    let message = acquire(&engine, &key(1), 11, later).expect("there is room");
    let denied = SlotGrantor::new(10, TERM).decide(&mut state, later, &message);
    let start = on_acquired(&message, denied, later);
    assert_eq!(start, Some(SlotOutcome::Denied));
    assert_eq!(engine.counts()[EngineEvent::SlotsVoided as usize], 1);
}

#[test]
fn a_number_that_a_request_of_another_tenant_has_is_not_used() {
    let engine = engine();
    let starts = [1, 2].map(|tenant| {
        let key = SlotKey {
            place: Some(Fingerprint::from_bits(tenant)),
            ..key(1)
        };
        let message = acquire(&engine, &key, 1, NOW).expect("there is room");
        let reply = SlotGrantor::new(10, TERM).decide(&mut SlotState::default(), NOW, &message);
        (engine.slots()).on_acquired(&key, &message, Ok(reply), NOW, NOW)
    });
    assert_eq!(
        starts,
        [
            Some(SlotOutcome::Granted { fence: NOW }),
            Some(SlotOutcome::Stale)
        ]
    );
    assert_eq!(slots_in_use(&engine), 1);
    end(&engine, NOW, 1);
    assert_eq!(slots_in_use(&engine), 0);
}

#[test]
fn no_more_messages_are_sent_at_once_than_may_be() {
    let engine = engine();
    for bits in 1..=3 {
        assert!(acquire(&engine, &key(bits), 1, NOW).is_some());
    }
    let sent = [2, 2, 2].map(|most| engine.slots().poll(NOW + TERM / 3, most).len());
    assert_eq!(sent, [2, 1, 0]);
}

#[test]
fn requests_that_were_outlived_are_counted_when_a_renewal_says_so_and_once() {
    let (engine, mut state) = (engine(), SlotState::default());
    start(&engine, &mut state, 1, NOW);
    let mut now = NOW;
    for (forgets, outlived) in [(true, 1), (false, 1), (true, 1)] {
        now += TERM / 3;
        if forgets {
            state = SlotState::default();
        }
        assert_eq!(tell(&engine, &mut state, now), 1);
        assert_eq!(
            engine.counts()[EngineEvent::SlotsOutlived as usize],
            outlived
        );
    }
}

#[test]
fn a_key_whose_slots_are_in_use_is_never_evicted_and_without_room_none_are_acquired() {
    let engine = Engine::new(32, true, terms());
    let mut state = SlotState::default();
    let number = start(&engine, &mut state, 1, NOW);
    let sent = |bits| acquire(&engine, &key(bits), 1, NOW);
    let messages: Vec<_> = (2..=32).map(|bits| (bits, sent(bits))).collect();
    assert!(messages.iter().all(|(_, message)| message.is_some()));
    assert_eq!(sent(33), None);
    assert_eq!(slots_in_use(&engine), 1);
    // A second state of a key that is there needs no room: it lies where another key says.
    let elsewhere = SlotKey {
        place: Some(Fingerprint::from_bits(7)),
        ..key(1)
    };
    assert!(acquire(&engine, &elsewhere, 1, NOW).is_some());
    for (bits, message) in messages {
        let message = message.expect("there was room");
        let reply = Err(NoReply::NotSent);
        engine
            .slots()
            .on_acquired(&key(bits), &message, reply, NOW, NOW);
    }
    assert!(sent(33).is_some());
    end(&engine, number, 1);
    assert_eq!(slots_in_use(&engine), 0);
}
