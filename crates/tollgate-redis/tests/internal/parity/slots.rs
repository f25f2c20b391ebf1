//! Slots beside the state machine of the prefilter, which a model checker has explored.

use redis::Value;
use tollgate_prefilter::{SlotMessage, SlotOutcome, SlotOwner, SlotReply};
use tollgate_test_reference::{SlotGrantor, SlotState};
use tollgate_test_servers::{numbers::Numbers, redis_client::Integers as _};

use crate::internal_tests::parity::{holds::histories, server::Server};

const STEPS: u64 = 400;

/// Added to each time to live, in ms: no state expires by the clock of the server while the history has one of its own.
const MARGIN: f64 = 1e12;

/// What happens in the request of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    Nothing,
    /// Another rule, which admits the request or denies it, and whether its check comes first.
    Another {
        admits: bool,
        is_first: bool,
    },
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
            if server.state_of(b"slots").is_none() {
                state = SlotState::default();
            }
        }
        let term = numbers.of(&[15_000_000, 15_000_000, 15_000_000, 7_000_001]);
        let limit = numbers.of(&[3, 3, 3, 5, 1]) as u32;
        let grantor = SlotGrantor::new(limit, term);
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
        let with = match numbers.below(4) {
            0 if message.want > 0 => With::Another {
                admits: numbers.one_in(2),
                is_first: numbers.one_in(2),
            },
            _ => With::Nothing,
        };
        let fits = grantor.decide(&mut state.clone(), now, &message);
        let is_denied = matches!(with, With::Another { admits: false, .. });
        let reply = match is_denied {
            true => grantor.deny(&mut state, now, &message),
            false => grantor.decide(&mut state, now, &message),
        };
        let here = format_args!("seed {seed}, step {step}, {message:?}, {with:?}");
        let check = check(&message, limit, term, with);
        let other = other(with);
        let is_first = matches!(with, With::Another { is_first: true, .. });
        let time = [(now as f64).to_le_bytes(), MARGIN.to_le_bytes()].concat();
        let mut args = vec![check.as_slice()];
        if let Some(other) = &other {
            args.insert(usize::from(!is_first), other);
        }
        let time_args: &[u8] = if by_server { &[] } else { &time };
        args.insert(0, time_args);
        let answer = server.evaluate(&[b"slots", b"other"], &args).integers();
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
        for units in [0, 1, 3] {
            let look = [time_args, &look(units, limit, term)];
            let answer = server.evaluate(&[b"slots"], &look).integers();
            let fits = match () {
                () if units > limit => -2,
                () if units == 0 || used + units <= limit => -1,
                () => 0,
            };
            let free = i64::from(limit) - i64::from(used);
            assert_eq!(answer[1..3], [fits, free], "{units}, {here}");
        }
        let (written, lives) = server.state_of(b"slots").unwrap_or_default();
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

fn check(message: &SlotMessage, limit: u32, term: u64, with: With) -> Vec<u8> {
    let more = matches!(
        with,
        With::Another {
            is_first: false,
            ..
        }
    );
    let mut check = head(more, 1, message.want);
    check.extend(quota(limit, term));
    check.extend(message.owner.0.to_le_bytes());
    check.extend((message.seq as f64).to_le_bytes());
    check.extend(message.lo.to_le_bytes());
    check.extend(message.hi.to_le_bytes());
    check.push(u8::from(message.is_exact));
    check
}

/// A check without a message, which only looks.
fn look(units: u32, limit: u32, term: u64) -> Vec<u8> {
    let mut look = head(false, 1, units);
    look[0] = 1;
    look.extend(quota(limit, term));
    look
}

fn quota(limit: u32, term: u64) -> Vec<u8> {
    let mut quota = vec![22];
    quota.extend((term as f64).to_le_bytes());
    quota.extend(f64::from(limit).to_le_bytes());
    quota.extend([0; 4]);
    quota
}

/// A check of a fixed window that admits everything, or of one unit more than it has.
fn other(with: With) -> Option<Vec<u8>> {
    let With::Another { admits, is_first } = with else {
        return None;
    };
    let mut check = head(is_first, 2, if admits { 1 } else { 2_000_000 });
    check.push(18);
    check.extend(1_000_000_f64.to_le_bytes());
    check.extend(1_000_000_f64.to_le_bytes());
    check.extend([0; 4]);
    Some(check)
}

/// A take of an enforced rule.
fn head(more: bool, key: u16, units: u32) -> Vec<u8> {
    let mut head = vec![0, 0, u8::from(more)];
    head.extend(key.to_le_bytes());
    head.extend(f64::from(units).to_le_bytes());
    head
}

fn bytes(state: &SlotState, limit: u32, term: u64) -> Vec<u8> {
    let mut bytes = vec![22];
    bytes.extend((term as f64).to_le_bytes());
    bytes.extend(f64::from(limit).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend((state.fence as f64).to_le_bytes());
    for record in &state.owners {
        bytes.extend(record.owner.0.to_le_bytes());
        for number in [record.seq, record.expires_at, record.term] {
            bytes.extend((number as f64).to_le_bytes());
        }
        bytes.extend(record.count.to_le_bytes());
    }
    bytes
}

#[test]
fn a_value_that_is_not_of_slots_is_left_alone() {
    let mut server = Server::start();
    for value in [&b"x"[..], &[22; 30], &[17; 29]] {
        server.command(&[b"SET", b"slots", value]);
        let message = SlotMessage {
            owner: SlotOwner(1),
            seq: 1,
            lo: 0,
            hi: 0,
            want: 1,
            is_exact: true,
        };
        let check = check(&message, 1, 15_000_000, With::Nothing);
        let answer = server.evaluate(&[b"slots", b"other"], &[b"", &check]);
        assert_eq!(answer.integers()[1..], [-3, 0, 0]);
        let left = server.command(&[b"GET", b"slots"]);
        assert_eq!(left, Value::BulkString(value.to_vec()));
    }
}
