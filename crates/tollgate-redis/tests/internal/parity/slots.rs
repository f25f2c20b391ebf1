//! Slots beside the state machine of the prefilter, which a model checker has explored.

use std::time::Duration;

use redis::Value;
use tollgate_core::{Check, Quota, Rule, RuleSet, SECOND, store::Fingerprint};
use tollgate_prefilter::{SlotMessage, SlotOutcome, SlotOwner, SlotReply};
use tollgate_test_reference::{SlotGrantor, SlotState};
use tollgate_test_servers::{numbers::Numbers, redis_client::Integers as _};

use crate::{
    internal_tests::parity::{holds::histories, server::Server},
    keys::keyspace::{Keyspace, Partition},
    script::{
        args::{Operation, ScriptCall},
        encoder::Encoder,
    },
};

const STEPS: u64 = 400;

/// Added to each time to live: no state expires by the clock of the server while the history has one of its own.
const MARGIN: Duration = Duration::from_secs(1_000_000_000);

/// Of another rule in the request of a message: whether it admits the request, and whether its check comes first.
#[derive(Clone, Copy, Debug)]
struct Other {
    admits: bool,
    is_first: bool,
}

#[test]
fn slots_are_granted_by_the_script_as_by_the_grantor() {
    let mut server = Server::start();
    for seed in 0..histories(20) {
        server.forget_everything();
        history(&mut server, seed, false);
    }
}

/// By the clock of the server, which stands where the history puts it, with the time to live of each state.
pub(super) fn slots_live_until_the_last_owner_is_forgotten() {
    let mut server = Server::start_standing();
    for seed in 0..8 {
        server.forget_everything();
        history(&mut server, seed, true);
    }
}

fn history(server: &mut Server, seed: u64, by_server: bool) {
    let mut numbers = Numbers(seed);
    let mut state = SlotState::default();
    let mut now = 1_700_000_000_000_000 + numbers.below(1_000_000_000);
    let mut sent = 0;
    let key = call(None, &rule_set(1, 1, false), &[units(0)], None)
        .keys()
        .next()
        .expect("one")
        .to_vec();
    // How often it went each way, so that each is seen.
    let mut seen = [0; 3];
    for step in 0..STEPS {
        now += match numbers.below(12) {
            0 => 15_000_000,
            1..4 => 0,
            _ => numbers.below(3_000_000),
        };
        if numbers.one_in(60) && !by_server {
            now -= 20_000_000;
        }
        if by_server {
            // A state whose time is up is gone, to the millisecond, and with it the number of the last grant.
            server.stand_at(now);
            if server.state_of(&key).is_none() {
                state = SlotState::default();
            }
        }
        let term = numbers.of(&[15_000_000, 15_000_000, 15_000_000, 7_000_001]);
        let limit = numbers.of(&[3, 3, 3, 5, 1]) as u32;
        let waits = numbers.below(4) > 0;
        let grantor = SlotGrantor::new(limit, term).waits(waits);
        sent += numbers.below(3);
        let lo = numbers.below(3) as u32;
        let message = SlotMessage {
            owner: SlotOwner(1 + numbers.below(4)),
            // Sometimes late.
            seq: sent - numbers.below(4).min(sent),
            lo,
            hi: lo + numbers.below(3) as u32,
            want: numbers.of(&[0, 1, 1, 1, 2, 4]) as u32,
            is_exact: numbers.one_in(2),
        };
        let is_with_other = numbers.below(4) == 0 && message.want > 0;
        let other = is_with_other.then(|| Other {
            admits: numbers.one_in(2),
            is_first: numbers.one_in(2),
        });
        let fits = grantor.decide(&mut state.clone(), now, &message);
        let is_denied = other.is_some_and(|other| !other.admits);
        let reply = match is_denied {
            true => grantor.deny(&mut state, now, &message),
            false => grantor.decide(&mut state, now, &message),
        };
        let here = format_args!("seed {seed}, step {step}, {message:?}, {other:?}");
        let rules = rule_set(limit, term, waits);
        let time = (!by_server).then_some(now);
        let is_first = other.is_some_and(|other| other.is_first);
        let mut checks = vec![units(message.want)];
        if let Some(other) = other {
            let cost = if other.admits { 1 } else { 2_000_000 };
            checks.insert(usize::from(!is_first), Check::new(1, units(1).key(), cost));
        }
        let answer = server
            .run(&call(time, &rules, &checks, Some(&message)))
            .integers();
        let free = i64::from(limit) - grantor.used(&state, now) as i64;
        let [retry, left] = numbers_of(&message, &reply, &fits, is_denied, limit);
        let expected = [retry, free, left];
        let at = 1 + 3 * usize::from(is_first);
        assert_eq!(answer[at..at + 3], expected, "{here}");
        seen[match reply.outcome {
            SlotOutcome::Granted { .. } => 0,
            SlotOutcome::Denied => 1,
            SlotOutcome::Stale => 2,
        }] += 1;
        let used: u32 = (state.owners.iter())
            .filter(|owner| owner.expires_at > now)
            .map(|owner| owner.count)
            .sum();
        for want in [0, 1, 3] {
            let answer = server
                .run(&call(time, &rules, &[units(want)], None))
                .integers();
            let fits = match () {
                () if want > limit => -2,
                () if want == 0 || used + want <= limit => -1,
                () => 0,
            };
            let free = i64::from(limit) - i64::from(used);
            assert_eq!(answer[1..3], [fits, free], "{want}, {here}");
        }
        let (written, lives) = server.state_of(&key).unwrap_or_default();
        if reply.outcome == SlotOutcome::Stale {
            continue;
        }
        assert_eq!(written, bytes(&state, limit, term), "{here}");
        if by_server {
            let fresh_after = grantor.fresh_after(&state, now);
            assert_eq!(lives, fresh_after.div_ceil(1_000) as i64, "{here}");
        }
    }
    assert!(seen.iter().all(|times| *times > 10), "{seen:?}");
}

/// What the script returns for a check: whether it fits, and until when its owner is known.
fn numbers_of(
    message: &SlotMessage,
    reply: &SlotReply,
    fits: &SlotReply,
    is_denied: bool,
    limit: u32,
) -> [i64; 2] {
    let retry = match (reply.outcome, fits.outcome) {
        (SlotOutcome::Stale, _) => 1,
        (_, SlotOutcome::Granted { .. }) if is_denied => -1,
        (SlotOutcome::Granted { .. }, _) if message.want == 0 => -1,
        (SlotOutcome::Granted { fence }, _) => -4 - fence as i64,
        _ if message.want > limit => -2,
        _ => 0,
    };
    let left = reply.left as i64;
    [retry, if reply.is_new { -1 - left } else { left }]
}

fn units(units: u32) -> Check {
    Check::new(0, Fingerprint::from_bits(7), units.into())
}

/// A rule of slots, and one next to it.
fn rule_set(limit: u32, term: u64, waits: bool) -> Encoder {
    let slots = Rule::new("slots", Quota::concurrent(limit.into()));
    let rules = RuleSet::new([
        if waits { slots.wait(SECOND) } else { slots },
        Rule::new("other", Quota::fixed_window(1_000_000, SECOND)),
    ]);
    let keyspace = Keyspace::new("tg", Partition::One).expect("letters");
    let term = Duration::from_micros(term);
    Encoder::with_caps(&rules.expect("valid rules"), keyspace, term, false, |_| {
        false
    })
    .expect("no partition")
}

/// A request with a message, or one that only looks; by the server's clock where no time is given.
fn call(
    now: Option<u64>,
    rules: &Encoder,
    checks: &[Check],
    message: Option<&SlotMessage>,
) -> ScriptCall {
    let mut call = now.map_or_else(ScriptCall::new, |now| ScriptCall::at(now, MARGIN));
    let is_added = match message {
        None => call.peek(rules, checks).is_some(),
        Some(message) if message.want == 0 => {
            (call.tell_slots(rules, &checks[0], None, message, None)).is_some()
        }
        Some(message) => {
            let what = Operation::Take;
            let layout = call.request(
                rules,
                checks,
                what,
                u64::MAX,
                |_| true,
                |_, _, _| Some(*message),
            );
            layout.is_some()
        }
    };
    assert!(is_added);
    call
}

fn bytes(state: &SlotState, limit: u32, term: u64) -> Vec<u8> {
    let mut bytes = vec![22];
    bytes.extend((term as f64).to_le_bytes());
    bytes.extend(f64::from(limit).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend((state.fence as f64).to_le_bytes());
    for record in &state.owners {
        bytes.extend(record.owner.0.to_le_bytes());
        let term = record.term as f64 * if record.waits { -1.0 } else { 1.0 };
        for number in [record.seq as f64, record.expires_at as f64, term] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(record.count.to_le_bytes());
    }
    bytes
}

#[test]
fn a_process_leaves_a_slot_to_one_that_waits_and_has_fewer() {
    let mut server = Server::start();
    // In the time in which a slot is left; later; and from a process that is gone.
    for (window, asked_before, expected) in [
        (0, 0, [0, -1]),
        (200_000, 0, [-1, 0]),
        (0, 300_000, [-1, 0]),
    ] {
        server.forget_everything();
        let (asked, now) = (1_700_000_000_000_000, 1_700_000_000_000_000 + window);
        let mut seq = 0;
        let mut take = |owner, at| {
            seq += 1;
            let owner = SlotOwner(owner);
            let message = SlotMessage {
                owner,
                seq,
                lo: 0,
                hi: 0,
                want: 1,
                is_exact: true,
            };
            let call = call(
                Some(at),
                &rule_set(1, 15_000_000, true),
                &[units(1)],
                Some(&message),
            );
            server.run(&call).integers()[1].max(-1)
        };
        assert_eq!(
            [take(1, asked - asked_before), take(2, asked - asked_before)],
            [-1, 0]
        );
        // What it holds goes back, and is wanted anew.
        assert_eq!([take(1, now), take(2, now)], expected);
    }
}

#[test]
fn a_value_that_is_not_of_slots_is_left_alone() {
    let mut server = Server::start();
    let message = SlotMessage {
        owner: SlotOwner(1),
        seq: 1,
        lo: 0,
        hi: 0,
        want: 1,
        is_exact: true,
    };
    let call = call(
        None,
        &rule_set(1, 15_000_000, false),
        &[units(1)],
        Some(&message),
    );
    let key = call.keys().next().expect("one");
    for value in [&b"x"[..], &[22; 30], &[17; 29]] {
        server.command(&[b"SET", key, value]);
        assert_eq!(server.run(&call).integers()[1..], [-3, 0, 0]);
        let left = server.command(&[b"GET", key]);
        assert_eq!(left, Value::BulkString(value.to_vec()));
    }
}
