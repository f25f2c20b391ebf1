//! Tests of the table of leased slots.

use super::*;
use crate::slots::slot_grantor::{SlotGrantor, SlotState};

const TERM: Tick = 15_000_000;
const NOW: Tick = 1_700_000_000_000_000;

/// Processes, the store, and the time.
struct Fleet {
    processes: Vec<SlotLeaseTable<()>>,
    state: SlotState,
    limit: u32,
    now: Tick,
}

fn key() -> SlotKey {
    SlotKey {
        key: Fingerprint::from_bits(1),
        rule: "exports".into(),
        place: None,
    }
}

impl Fleet {
    fn new(processes: u64, limit: u32) -> Self {
        let table = |owner| SlotLeaseTable::new(SlotOwner(owner), SlotTerms::new(TERM));
        Self {
            processes: (1..=processes).map(table).collect(),
            state: SlotState::default(),
            limit,
            now: NOW,
        }
    }

    fn ask(&mut self, process: usize, slots: u32) -> LeasedStart {
        let needs = (slots, self.limit);
        self.processes[process].start(&key(), (), needs, self.now)
    }

    /// Sends what is due: how many messages, and what becomes of who waits.
    fn send(&mut self, process: usize) -> Vec<LeaseAnswer> {
        let grantor = SlotGrantor::new(self.limit, TERM);
        let messages = self.processes[process].poll(self.now, 9);
        let answers = messages.into_iter().map(|(key, (), message)| {
            assert!(message.want <= self.limit);
            let reply = grantor.decide(&mut self.state, self.now, &message);
            self.processes[process].on_reply(&key, &message, &reply, self.now)
        });
        answers.collect()
    }

    /// The number of a request that starts, with the calls that it takes.
    fn start(&mut self, process: usize, slots: u32) -> Option<u64> {
        // Each round asks for less.
        for _ in 0..9 {
            match self.ask(process, slots) {
                LeasedStart::Started { number, .. } => return Some(number),
                LeasedStart::Denied { .. } => return None,
                LeasedStart::Wait => while self.send(process).contains(&LeaseAnswer::Again) {},
            }
        }
        panic!("it waits for ever")
    }

    fn end(&mut self, process: usize, number: u64, slots: u32) {
        self.processes[process].end("exports", key().key, number, slots, self.now);
    }

    fn used(&self) -> u64 {
        SlotGrantor::new(self.limit, TERM).used(&self.state, self.now)
    }
}

#[test]
fn a_lease_serves_requests_without_messages_and_goes_back_when_it_is_idle() {
    let mut fleet = Fleet::new(1, 10);
    for _ in 0..100 {
        let numbers = [(); 3].map(|()| fleet.start(0, 1).expect("it is free"));
        for number in numbers {
            fleet.end(0, number, 1);
            fleet.end(0, number, 1);
        }
    }
    assert!(fleet.processes[0].messages() <= 3 && fleet.used() >= 3);
    assert_eq!(fleet.processes[0].in_use().0, 0);
    // What was needed since the last renewal stays, and goes back with the next one.
    for left in [3, 0] {
        fleet.now += TERM / 3;
        fleet.send(0);
        assert_eq!(fleet.used(), left);
    }
    let table = &fleet.processes[0];
    assert!(table.due_at().is_none() && !table.knows(&key()));
}

#[test]
fn a_denial_is_remembered_and_then_asked_for_again() {
    let mut fleet = Fleet::new(2, 2);
    let running = fleet.start(0, 2).expect("they are free");
    assert_eq!(fleet.start(1, 1), None);
    let messages = fleet.processes[1].messages();
    for _ in 0..9 {
        assert_eq!(fleet.ask(1, 1), LeasedStart::Denied { free: 0 });
    }
    assert_eq!(fleet.processes[1].messages(), messages);
    fleet.end(0, running, 2);
    fleet.processes[0].return_idle(fleet.now);
    fleet.send(0);
    assert_eq!(fleet.ask(1, 1), LeasedStart::Denied { free: 0 });
    fleet.now += TERM / 150;
    assert!(fleet.start(1, 1).is_some());
    // What is known of a denial alone is forgotten.
    let mut fleet = Fleet::new(2, 1);
    assert!(fleet.start(0, 1).is_some() && fleet.start(1, 1).is_none());
    fleet.now = fleet.processes[1].due_at().expect("it is forgotten");
    assert_eq!(fleet.send(1).len(), 0);
    assert!(!fleet.processes[1].knows(&key()));
}

#[test]
fn requests_that_do_not_fit_together_are_granted_as_far_as_they_do() {
    let mut fleet = Fleet::new(2, 10);
    assert!(fleet.start(0, 7).is_some());
    for _ in 0..5 {
        assert_eq!(fleet.ask(1, 1), LeasedStart::Wait);
    }
    assert_eq!(fleet.send(1), [LeaseAnswer::Again]);
    assert_eq!(fleet.send(1), [LeaseAnswer::Known]);
    assert_eq!((0..3).filter(|_| fleet.start(1, 1).is_some()).count(), 3);
    assert_eq!((fleet.start(1, 1), fleet.used()), (None, 10));
    // Nor does one that needs more than are free.
    let mut fleet = Fleet::new(2, 10);
    assert!(fleet.start(0, 7).is_some());
    assert_eq!(fleet.start(1, 4), None);
    assert_eq!(fleet.used(), 7);
}

#[test]
fn processes_that_are_always_busy_leave_slots_to_each_other() {
    let mut fleet = Fleet::new(3, 4);
    let mut running: Vec<(usize, u64)> = Vec::new();
    let mut started = [0; 3];
    for step in 0..40_000 {
        fleet.now += 1_000;
        // One after the other: the first has taken all slots by then.
        let joined = 1 + step / 5_000;
        for (process, started) in started.iter_mut().enumerate().take(joined) {
            fleet.send(process);
            if let Some(number) = fleet.start(process, 1) {
                running.push((process, number));
                *started += 1;
            }
        }
        assert!(running.len() <= 4 && fleet.used() <= 4);
        if step % 3 == 0 && !running.is_empty() {
            let (process, number) = running.remove(0);
            fleet.end(process, number, 1);
        }
    }
    let least = started.iter().min().expect("there are three");
    assert!(least * 20 > started.iter().sum::<u64>(), "{started:?}");
}

/// Both processes learn the lower limit at once, and Redis with their next messages: a message takes half of D to the store, and
/// its reply the other half.
#[test]
fn under_a_lowered_limit_requests_start_above_it_for_a_third_of_the_term_and_a_delay() {
    const STEP: Tick = 10_000;
    const D: Tick = 400_000;
    const LOWER: u32 = 4;
    // From different moments of a renewal on.
    for lowered_at in (0..TERM / 3).step_by(290_000).map(|at| NOW + TERM + at) {
        let mut fleet = Fleet::new(2, 12);
        let mut running: Vec<(usize, u64, Tick)> = Vec::new();
        let mut replies = Vec::new();
        let mut messages = Vec::new();
        let (mut last_above, mut starts) = (0, 0);
        while fleet.now < lowered_at + TERM {
            fleet.now += STEP;
            let now = fleet.now;
            if now >= lowered_at {
                fleet.limit = LOWER;
            }
            for process in 0..2 {
                let due = fleet.processes[process].poll(now, 9).into_iter();
                messages.extend(due.map(|(_, (), it)| (now, process, it)));
            }
            let grantor = SlotGrantor::new(fleet.limit, TERM);
            messages.retain(|(sent, process, message)| {
                let is_there = sent + D / 2 <= now;
                if is_there {
                    let reply = grantor.decide(&mut fleet.state, now, message);
                    replies.push((*sent, *process, *message, reply));
                }
                !is_there
            });
            let processes = &mut fleet.processes;
            replies.retain(|(sent, process, message, reply)| {
                let is_there = sent + D <= now;
                if is_there {
                    processes[*process].on_reply(&key(), message, reply, now);
                }
                !is_there
            });
            while let Some(index) = running.iter().position(|it| it.2 <= now) {
                let (process, number, _) = running.swap_remove(index);
                fleet.end(process, number, 1);
            }
            for process in 0..2 {
                // As short as requests on lease are, so that slots are used again and again.
                if let LeasedStart::Started { number, .. } = fleet.ask(process, 1) {
                    running.push((process, number, now + 200_000));
                    let is_above = running.len() > fleet.limit as usize;
                    assert!(!is_above || now >= lowered_at, "above {}", fleet.limit);
                    if is_above {
                        last_above = now;
                    } else if now >= lowered_at {
                        starts += 1;
                    }
                }
            }
        }
        assert!(starts > 0, "the lower limit is used");
        // The step, and what a process waits for before it renews.
        let end = lowered_at + TERM / 3 + D + 2 * STEP;
        assert!(
            last_above > lowered_at && last_above <= end,
            "{} µs after {lowered_at}, not within {}",
            last_above - lowered_at,
            end - lowered_at
        );
    }
}

#[test]
fn a_message_that_was_not_sent_leaves_nothing_behind_and_a_lost_one_is_said_again() {
    let mut fleet = Fleet::new(1, 2);
    assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
    let messages = fleet.processes[0].poll(NOW, 9);
    fleet.processes[0].on_lost(&messages[0].0, false, NOW);
    assert!(!fleet.processes[0].knows(&key()));
    // The store has granted it, and the reply is lost.
    assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
    let messages = fleet.processes[0].poll(NOW, 9);
    let _lost = SlotGrantor::new(2, TERM).decide(&mut fleet.state, NOW, &messages[0].2);
    fleet.processes[0].on_lost(&messages[0].0, true, NOW);
    assert_eq!(fleet.used(), 1);
    assert_eq!(fleet.processes[0].due_at(), Some(NOW + TERM / 30));
    fleet.now += TERM / 30;
    fleet.send(0);
    assert_eq!(fleet.used(), 0);
    // While it cannot be said, the key is kept for two terms.
    assert!(fleet.start(0, 1).is_some_and(|number| {
        fleet.end(0, number, 1);
        true
    }));
    let mut tries = 0;
    while let Some(at) = fleet.processes[0].due_at() {
        fleet.now = at;
        for (key, ..) in fleet.processes[0].poll(at, 9) {
            tries += 1;
            assert!(tries < 100, "it is not forgotten");
            fleet.processes[0].on_lost(&key, true, at);
        }
    }
    assert!(!fleet.processes[0].knows(&key()) && tries > 40, "{tries}");
}

#[test]
fn a_return_that_was_not_sent_is_said_again() {
    let mut fleet = Fleet::new(1, 2);
    let number = fleet.start(0, 1).expect("it is free");
    fleet.end(0, number, 1);
    fleet.processes[0].return_idle(NOW);
    let messages = fleet.processes[0].poll(NOW, 9);
    fleet.processes[0].on_lost(&messages[0].0, false, NOW);
    assert_eq!(fleet.used(), 1);
    fleet.now += TERM / 30;
    assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
    assert_eq!(fleet.used(), 0);
}

#[test]
fn a_lease_is_renewed_before_it_is_used_after_its_process_stood_still() {
    let mut fleet = Fleet::new(1, 9);
    let number = fleet.start(0, 2).expect("they are free");
    fleet.end(0, number, 2);
    // Of the term, 150 ms and the margin are left.
    fleet.now += TERM - TERM / 100 - 150_000;
    assert_eq!(fleet.ask(0, 2), LeasedStart::Wait);
    let messages = fleet.processes[0].messages();
    assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
    assert!(matches!(fleet.ask(0, 2), LeasedStart::Started { .. }));
    assert_eq!(fleet.processes[0].messages(), messages + 1);
    assert_eq!(fleet.used(), 2, "and no more than those are asked for");
}

#[test]
fn a_lease_whose_renewals_were_lost_is_renewed_as_soon_as_a_request_needs_it() {
    let mut fleet = Fleet::new(1, 9);
    let number = fleet.start(0, 2).expect("they are free");
    fleet.end(0, number, 2);
    let away = |fleet: &mut Fleet, until| {
        while let Some(at) = fleet.processes[0].due_at().filter(|at| *at <= until) {
            fleet.now = at;
            for (key, ..) in fleet.processes[0].poll(at, 9) {
                fleet.processes[0].on_lost(&key, true, at);
            }
        }
    };
    away(&mut fleet, NOW + TERM / 2);
    // They are in use from time to time, so that they stay.
    let number = fleet.start(0, 2).expect("it is on lease");
    fleet.end(0, number, 2);
    // Too little of the term is left to start on.
    away(&mut fleet, NOW + TERM - TERM / 6);
    fleet.now += 1;
    assert_eq!(fleet.ask(0, 2), LeasedStart::Wait);
    assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
    assert!(matches!(fleet.ask(0, 2), LeasedStart::Started { .. }));
    assert_eq!(fleet.used(), 2, "and no more than those are asked for");
}

#[test]
fn requests_that_outlive_what_the_store_knows_are_counted_and_recognised() {
    let mut fleet = Fleet::new(1, 2);
    let number = fleet.start(0, 1).expect("it is free");
    let is_outlived =
        |fleet: &Fleet, number| fleet.processes[0].is_outlived("exports", key().key, number);
    assert!(!is_outlived(&fleet, number));
    fleet.state = SlotState::default();
    let second = fleet.start(0, 1).expect("it is free");
    assert!(is_outlived(&fleet, number) && !is_outlived(&fleet, second));
    assert_eq!((fleet.processes[0].outlived(), fleet.used()), (1, 2));
}

#[test]
fn the_keys_of_a_process_are_bounded() {
    let mut table = SlotLeaseTable::new(SlotOwner(7), SlotTerms::new(TERM));
    for bits in 0..SlotLeaseTable::<()>::MOST_KEYS {
        assert!(table.has_room(1));
        let key = SlotKey {
            key: Fingerprint::from_bits(bits as u128),
            ..key()
        };
        assert_eq!(table.start(&key, (), (1, 1), NOW), LeasedStart::Wait);
    }
    assert!(table.has_room(0) && !table.has_room(1));
}

#[test]
fn a_process_has_reported_when_no_slot_is_idle_that_the_store_counts_for_it() {
    let mut fleet = Fleet::new(1, 4);
    assert!(fleet.processes[0].is_reported());
    let number = fleet.start(0, 2).expect("they are free");
    assert!(fleet.processes[0].is_reported());
    fleet.end(0, number, 2);
    assert!(!fleet.processes[0].is_reported());
    fleet.processes[0].return_idle(fleet.now);
    assert!(!fleet.processes[0].is_reported());
    fleet.send(0);
    assert!(fleet.processes[0].is_reported());
}

#[test]
fn requests_wait_on_for_as_many_slots_where_a_later_message_came_first() {
    let mut fleet = Fleet::new(1, 4);
    assert_eq!(fleet.ask(0, 3), LeasedStart::Wait);
    let messages = fleet.processes[0].poll(NOW, 9);
    let (of, (), message) = &messages[0];
    let stale = SlotReply {
        outcome: SlotOutcome::Stale,
        count: 0,
        free: 4,
        over: 0,
        left: TERM,
        is_new: false,
    };
    let answer = fleet.processes[0].on_reply(of, message, &stale, NOW);
    assert_eq!(answer, LeaseAnswer::Again);
    let again = fleet.processes[0].poll(NOW, 9);
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].2.want, again[0].2.seq), (3, message.seq + 1));
}

/// What the store says that has denied what was wanted, although that many are free.
fn denial(free: u32) -> SlotReply {
    SlotReply {
        outcome: SlotOutcome::Denied,
        count: 0,
        free,
        over: 0,
        left: TERM,
        is_new: false,
    }
}

#[test]
fn messages_reach_the_store_as_the_last_request_has_said_and_ask_for_no_more_than_its_limit() {
    let mut table = SlotLeaseTable::new(SlotOwner(1), SlotTerms::new(TERM));
    for (target, limit) in [('a', 9), ('b', 9), ('c', 2)] {
        assert_eq!(
            table.start(&key(), target, (1, limit), NOW),
            LeasedStart::Wait
        );
    }
    let messages = table.poll(NOW, 9);
    let seen: Vec<_> = messages.iter().map(|it| (it.1, it.2.want)).collect();
    assert_eq!((seen, table.due_at()), (vec![('c', 2)], None));
}

#[test]
fn no_more_messages_are_sent_at_once_than_may_be() {
    let mut table = SlotLeaseTable::new(SlotOwner(1), SlotTerms::new(TERM));
    for bits in 1..=3 {
        let key = SlotKey {
            key: Fingerprint::from_bits(bits),
            ..key()
        };
        table.start(&key, (), (1, 1), NOW);
    }
    let sent = [2, 2, 2].map(|most| table.poll(NOW, most).len());
    assert_eq!(sent, [2, 1, 0]);
}

#[test]
fn slots_on_their_way_back_are_not_used() {
    let mut fleet = Fleet::new(1, 4);
    let numbers = [(); 2].map(|()| fleet.start(0, 1).expect("it is free"));
    fleet.end(0, numbers[0], 1);
    fleet.processes[0].return_idle(NOW);
    assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
    // What runs stays on lease when it ends.
    let mut fleet = Fleet::new(1, 4);
    let numbers = [(); 2].map(|()| fleet.start(0, 1).expect("it is free"));
    fleet.end(0, numbers[0], 1);
    fleet.processes[0].return_idle(NOW);
    fleet.send(0);
    fleet.end(0, numbers[1], 1);
    assert_eq!(fleet.processes[0].due_at(), Some(NOW + TERM / 3));
    assert!(matches!(fleet.ask(0, 1), LeasedStart::Started { .. }));
    assert_eq!(fleet.used(), 1);
}

#[test]
fn what_is_free_is_said_as_the_store_has_said_it() {
    let mut fleet = Fleet::new(2, 10);
    assert_eq!(fleet.ask(0, 7), LeasedStart::Wait);
    fleet.send(0);
    let started = LeasedStart::Started { number: 1, free: 3 };
    assert_eq!(fleet.ask(0, 7), started);
    assert_eq!(fleet.start(1, 4), None);
    for (slots, free) in [(9, 3), (4, 3), (2, 1), (1, 0)] {
        assert_eq!(fleet.ask(1, slots), LeasedStart::Denied { free }, "{slots}");
    }
}

#[test]
fn requests_that_wait_ask_again_for_what_is_free_if_one_of_them_fits() {
    // Of ten, eight are taken.
    for (asked, again) in [
        (&[1, 3][..], Some(2)),
        (&[3, 2], Some(2)),
        (&[3, 3], None),
        (&[3], None),
    ] {
        let mut fleet = Fleet::new(2, 10);
        assert!(fleet.start(0, 8).is_some());
        for slots in asked {
            assert_eq!(fleet.ask(1, *slots), LeasedStart::Wait);
        }
        let answer = match again {
            Some(_) => LeaseAnswer::Again,
            None => LeaseAnswer::Known,
        };
        assert_eq!(fleet.send(1), [answer], "{asked:?}");
        let messages = fleet.processes[1].poll(NOW, 9);
        let wants: Option<u32> = messages.first().map(|it| it.2.want);
        assert_eq!(wants, again, "{asked:?}");
    }
}

#[test]
fn what_another_rule_has_denied_is_asked_for_again_in_a_smaller_part_or_not_at_all() {
    // More than all that are waited for are free.
    for (asked, again) in [(&[1, 3][..], Some(3)), (&[1], None)] {
        let mut fleet = Fleet::new(1, 10);
        for slots in asked {
            assert_eq!(fleet.ask(0, *slots), LeasedStart::Wait);
        }
        let table = &mut fleet.processes[0];
        let messages = table.poll(NOW, 9);
        let answer = table.on_reply(&key(), &messages[0].2, &denial(9), NOW);
        assert_eq!(answer == LeaseAnswer::Again, again.is_some());
        let messages = table.poll(NOW, 9);
        let wants: Option<u32> = messages.first().map(|it| it.2.want);
        assert_eq!(wants, again, "{asked:?}");
    }
}

#[test]
fn a_message_is_no_smaller_because_an_earlier_one_was_denied() {
    let mut fleet = Fleet::new(2, 10);
    let running = fleet.start(0, 7).expect("they are free");
    for _ in 0..5 {
        assert_eq!(fleet.ask(1, 1), LeasedStart::Wait);
    }
    while fleet.send(1).contains(&LeaseAnswer::Again) {}
    fleet.end(0, running, 7);
    fleet.processes[0].return_idle(NOW);
    fleet.send(0);
    assert_eq!(fleet.ask(1, 8), LeasedStart::Wait);
    assert_eq!(fleet.processes[1].poll(NOW, 9)[0].2.want, 8);
}

#[test]
fn who_has_asked_meanwhile_asks_again_after_a_reply_or_when_it_is_lost() {
    for (is_lost, due) in [(false, NOW + TERM / 3), (true, NOW + TERM / 30)] {
        let mut fleet = Fleet::new(1, 4);
        assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
        let messages = fleet.processes[0].poll(NOW, 9);
        assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
        let message = messages[0].2;
        let reply = SlotGrantor::new(4, TERM).decide(&mut fleet.state, NOW, &message);
        let table = &mut fleet.processes[0];
        match is_lost {
            true => table.on_lost(&key(), true, NOW),
            false => assert_eq!(
                table.on_reply(&key(), &message, &reply, NOW),
                LeaseAnswer::Known
            ),
        }
        assert_eq!(table.due_at(), Some(due));
        assert!(!table.is_reported(), "the store may count it");
    }
}

#[test]
fn some_more_are_asked_for_than_are_wanted_as_long_as_plenty_are_free() {
    // By the limit and what is wanted, while eight run: a quarter of the lease more, but at most a quarter of what is free.
    for (limit, wanted, asked) in [(40, 1, 4), (12, 3, 4), (8, 1, 1)] {
        let mut fleet = Fleet::new(1, limit);
        assert!(fleet.start(0, 8).is_some());
        assert_eq!(fleet.ask(0, wanted), LeasedStart::Wait);
        let messages = fleet.processes[0].poll(NOW, 9);
        assert_eq!(messages[0].2.want, asked, "{limit}");
        // In the place of the renewal that was due.
        assert_eq!(fleet.processes[0].due_at(), None);
    }
}

#[test]
fn a_lease_without_a_free_slot_leaves_one_of_four_to_others_when_its_request_ends() {
    let full = || {
        let mut fleet = Fleet::new(2, 4);
        let numbers = [(); 4].map(|()| fleet.start(0, 1).expect("it is free"));
        fleet.now += TERM / 3;
        assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
        // Nothing is to be said before the next renewal.
        assert_eq!(fleet.processes[0].due_at(), Some(fleet.now + TERM / 3));
        (fleet, numbers[0])
    };
    // While all are in use there is none to leave.
    let (mut fleet, _) = full();
    assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
    let (mut fleet, number) = full();
    fleet.end(0, number, 1);
    assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
    assert_eq!(
        (fleet.used(), fleet.ask(0, 1)),
        (3, LeasedStart::Denied { free: 0 })
    );
    assert!(fleet.start(1, 1).is_some());
    let terms = SlotTerms::new(TERM);
    fleet.now += terms.deny_for() + terms.patience() - 1;
    assert!(matches!(fleet.ask(0, 1), LeasedStart::Denied { .. }));
    fleet.now += 1;
    assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
    // It does not ask for more with the message that leaves it.
    let (mut fleet, number) = full();
    fleet.end(0, number, 1);
    assert_eq!(fleet.ask(0, 2), LeasedStart::Wait);
    let messages = fleet.processes[0].poll(fleet.now, 9);
    assert_eq!((messages[0].2.want, messages[0].2.hi), (0, 3));
}

#[test]
fn it_is_looked_once_in_a_third_of_the_term_whether_a_lease_is_too_large() {
    let mut fleet = Fleet::new(1, 9);
    let number = fleet.start(0, 3).expect("they are free");
    fleet.end(0, number, 3);
    fleet.now += TERM / 3;
    assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
    assert_eq!((fleet.ask(0, 4), fleet.used()), (LeasedStart::Wait, 3));
    let messages = fleet.processes[0].poll(fleet.now, 9);
    assert_eq!(messages[0].2.hi, 3);
}

#[test]
fn requests_are_outlived_once_and_none_that_started_after_the_message() {
    let mut fleet = Fleet::new(1, 4);
    let numbers = [(); 2].map(|()| fleet.start(0, 1).expect("it is free"));
    fleet.end(0, numbers[1], 1);
    for (forgets, outlived) in [(true, 1), (false, 1), (true, 2), (true, 2)] {
        fleet.now += TERM / 3;
        if forgets {
            fleet.state = SlotState::default();
        }
        let messages = fleet.processes[0].poll(fleet.now, 9);
        let later = match fleet.ask(0, 1) {
            LeasedStart::Started { number, .. } => Some(number),
            _ => None,
        };
        let message = messages[0].2;
        let grantor = SlotGrantor::new(4, TERM);
        let reply = grantor.decide(&mut fleet.state, fleet.now, &message);
        let table = &mut fleet.processes[0];
        table.on_reply(&key(), &message, &reply, fleet.now);
        assert_eq!(table.outlived(), outlived);
        let is_outlived = |number| table.is_outlived("exports", key().key, number);
        assert!(is_outlived(numbers[0]) && !later.is_some_and(is_outlived));
    }
}

#[test]
fn no_more_slots_go_back_than_a_request_has_and_none_of_another_rule_or_place() {
    let mut fleet = Fleet::new(1, 9);
    let numbers = [3, 4].map(|slots| fleet.start(0, slots).expect("they are free"));
    fleet.end(0, numbers[0], 9);
    assert_eq!(fleet.processes[0].in_use().0, 4);
    let ends = |fleet: &mut Fleet, rule: &str, bits| {
        let key = Fingerprint::from_bits(bits);
        fleet.processes[0].end(rule, key, numbers[1], 4, NOW);
        fleet.processes[0].in_use().0
    };
    assert_eq!(ends(&mut fleet, "imports", 1), 4);
    assert_eq!(ends(&mut fleet, "exports", 0), 4);
    assert_eq!(ends(&mut fleet, "exports", 1), 0);
    // Two places of one rule and key.
    let mut table = SlotLeaseTable::new(SlotOwner(1), SlotTerms::new(TERM));
    let keys = [None, Some(5)].map(|place| SlotKey {
        place: place.map(Fingerprint::from_bits),
        ..key()
    });
    for key in &keys {
        assert_eq!(table.start(key, (), (1, 9), NOW), LeasedStart::Wait);
    }
    for (key, (), message) in table.poll(NOW, 9) {
        let reply = SlotGrantor::new(9, TERM).decide(&mut SlotState::default(), NOW, &message);
        table.on_reply(&key, &message, &reply, NOW);
    }
    let numbers = keys
        .each_ref()
        .map(|key| match table.start(key, (), (1, 9), NOW) {
            LeasedStart::Started { number, .. } => number,
            other => panic!("{other:?}"),
        });
    table.end("exports", key().key, numbers[1], 1, NOW);
    let running = keys
        .each_ref()
        .map(|key| table.entries[key].lease.running());
    assert_eq!(running, [1, 0]);
}

#[test]
fn what_the_store_counts_above_a_lowered_limit_is_in_use() {
    let mut fleet = Fleet::new(1, 2);
    assert!(fleet.start(0, 2).is_some());
    fleet.limit = 1;
    fleet.now += TERM / 3;
    fleet.send(0);
    assert_eq!(fleet.processes[0].in_use(), (2, 2));
}

#[test]
fn a_key_in_use_is_kept_however_long_the_store_is_away() {
    let mut fleet = Fleet::new(1, 2);
    assert!(fleet.start(0, 1).is_some());
    let table = &mut fleet.processes[0];
    while let Some(at) = table.due_at().filter(|at| *at < NOW + 4 * TERM) {
        assert_eq!(table.poll(at, 9).len(), 1);
        table.on_lost(&key(), true, at);
    }
    assert_eq!(table.in_use().0, 1);
}

#[test]
fn the_memory_of_a_table_is_that_of_its_keys_and_of_further_requests() {
    let mut fleet = Fleet::new(1, 9);
    assert_eq!(fleet.processes[0].usage(), TableUsage::default());
    let entry = size_of::<SlotKey>() + size_of::<Entry<()>>() + size_of::<(Tick, SlotKey)>();
    for _ in 0..100 {
        let number = fleet.start(0, 1).expect("it is free");
        let one = fleet.processes[0].usage();
        assert_eq!((one.keys, one.bytes), (1, (entry * 3 / 2) as u64));
        fleet.end(0, number, 1);
    }
    let _five = [(); 5].map(|()| fleet.start(0, 1).expect("it is free"));
    let bytes = entry * 3 / 2 + 5 * size_of::<(u64, u32)>();
    assert_eq!(fleet.processes[0].usage().bytes, bytes as u64);
}
