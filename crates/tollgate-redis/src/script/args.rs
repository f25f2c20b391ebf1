//! The arguments and the keys of a call, as `prelude.lua` documents them. Each key is there once for a request, and found by its number.

use tollgate_core::{Check, Clock, MAX_UNITS, Tick, store::Fingerprint};
use tollgate_prefilter::SlotMessage;

use crate::{
    keys::{
        keys::Name,
        keyspace::{Packed, Partition},
    },
    script::encoder::{
        BALANCES, DURABLE, Encoder, IDENTITY, RuleArgs, WAITS, WITH_BALANCE, double, set_window,
    },
};

/// What the script does with a check.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Take = 0,
    Query = 1,
    Refund = 2,
    Charge = 3,
    Reset = 4,
    Debit = 5,
    ReturnLease = 6,
    GrantLease = 7,
}

/// Flags that are added to the operation of a check: it has further keys; its state moves to the first of them; the answer
/// reports new keys.
const OTHER: u8 = 8;
const MOVES: u8 = 16;
const REPORTS_NEW: u8 = 32;
/// Its rule blocks keys.
const BLOCKS: u8 = 64;

/// Bits of the byte that says what follows a check: another check of its request; its own id, behind its numbers.
const MORE: u8 = 1;
const HAS_ID: u8 = 2;
/// The bytes of a check up to the end of its quota.
const CHECK: usize = 13 + IDENTITY;

/// The bytes of a block's setting before its times.
const SETTING: usize = 18;

/// The arguments of a call, in order; and by how many µs the server's clock, if it counts, is ahead of this process's.
#[derive(Clone, Default)]
pub(super) struct Args(Packed, i64);

impl Args {
    /// Those of a call without checks; `time` is empty where the server's clock counts.
    pub(super) fn at(time: &[u8], ahead: i64) -> Self {
        let mut args = Packed::default();
        args.bytes.extend_from_slice(time);
        args.end();
        Self(args, ahead)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.iter()
    }

    /// The arguments of checks that were added.
    pub(super) fn checks(&self) -> usize {
        self.0.len() - 1
    }

    /// Marks the check that starts at a position: another check of its request follows.
    pub(super) fn more_follow(&mut self, begun: usize) {
        self.0.bytes[begun + 2] |= MORE;
    }

    /// Begins a check. Gives its position.
    pub(super) fn begin(
        &mut self,
        what: Operation,
        rule_args: &RuleArgs,
        check: &Check,
        key: u16,
        quota: &[u8],
    ) -> usize {
        let bytes = &mut self.0.bytes;
        let begun = bytes.len();
        bytes.extend_from_slice(&[what as u8, rule_args.role, 0]);
        bytes.extend_from_slice(&key.to_le_bytes());
        // A larger cost never fits either.
        bytes.extend_from_slice(&double(check.cost().min(MAX_UNITS + 1)));
        bytes.extend_from_slice(quota);
        if let Some(calendar) = rule_args.calendar_of(check.plan()) {
            let identity = bytes.len() - IDENTITY;
            // By the clock of the call, which is that of the store or near to it.
            let now = match bytes[..self.0.ends[0]].first_chunk() {
                Some(now) => f64::from_le_bytes(*now) as Tick,
                None => Clock::system().now().saturating_add_signed(self.1),
            };
            set_window(&mut bytes[identity..], &calendar, now);
        }
        if rule_args.wait.is_some() && !matches!(what, Operation::Reset) {
            let algorithm = bytes.len() - IDENTITY;
            bytes[algorithm] = WAITS;
        }
        begun
    }

    /// Makes the check one of a durable rule, as `calendar.lua` reads it: with the key that says since when the server has its
    /// states, and with what is known to be used if it takes units.
    pub(super) fn add_durable(
        &mut self,
        begun: usize,
        since: u16,
        base: Option<Option<u64>>,
        may_owe: bool,
    ) {
        let bytes = &mut self.0.bytes;
        bytes[begun + CHECK - IDENTITY] = DURABLE;
        bytes.extend_from_slice(&since.to_le_bytes());
        if let Some(base) = base {
            let base = base.map_or(-1.0, |used| match used.min(MAX_UNITS) as f64 {
                used if may_owe => -2.0 - used,
                used => used,
            });
            bytes.extend_from_slice(&base.to_le_bytes());
        }
    }

    /// Adds the part of a check that follows its quota.
    pub(super) fn add(&mut self, tail: &[[u8; 8]]) {
        self.0.bytes.extend_from_slice(tail.as_flattened());
    }

    /// Adds the id of the check that starts at a position, and how its rule takes ids.
    pub(super) fn add_id(&mut self, begun: usize, id: [u8; 8], terms: [u8; 9]) {
        let bytes = &mut self.0.bytes;
        bytes[begun + 2] |= HAS_ID;
        bytes.extend_from_slice(&id);
        bytes.extend_from_slice(&terms);
    }

    /// Adds what a process says about slots to a take, as `concurrent.lua` reads it.
    pub(super) fn add_slots(&mut self, message: &SlotMessage, of_reservation: bool) {
        let bytes = &mut self.0.bytes;
        bytes.extend_from_slice(&message.owner.0.to_le_bytes());
        bytes.extend_from_slice(&double(message.seq));
        bytes.extend_from_slice(&message.lo.to_le_bytes());
        bytes.extend_from_slice(&message.hi.to_le_bytes());
        bytes.push(u8::from(message.is_exact) + u8::from(of_reservation));
    }

    /// Ends a check that has no other keys.
    pub(super) fn end(&mut self) {
        self.0.end();
    }

    /// Adds the setting of a rule that blocks keys, with `counted` denials or settled requests that the script does not know of.
    pub(super) fn add_block(&mut self, setting: &[u8], counts_denials: bool, counted: u16) {
        let begins = self.begins();
        let times = (setting.len() - SETTING) / size_of::<f64>();
        let bytes = &mut self.0.bytes;
        bytes[begins] += BLOCKS;
        bytes.extend_from_slice(setting);
        bytes.extend_from_slice(&counted.to_le_bytes());
        // A block has 32 times at most.
        bytes.extend_from_slice(&[u8::from(counts_denials), times as u8]);
    }

    /// Where the check begins that has not ended yet.
    fn begins(&self) -> usize {
        self.0.ends.last().copied().unwrap_or(0)
    }

    /// Ends a check, with its other keys if it has any.
    pub(super) fn end_with(&mut self, rules: &Encoder, found: Found, reports_new: bool) {
        let begins = self.begins();
        if reports_new || found.other > 0 || found.overflow > 0 {
            let moves = u8::from(rules.keyspace.keys.moves()) * MOVES;
            self.0.bytes[begins] += OTHER + moves + u8::from(reports_new) * REPORTS_NEW;
            for place in [found.other, found.overflow, found.overflow_other] {
                self.0.bytes.extend_from_slice(&place.to_le_bytes());
            }
        }
        if found.balance > 0 {
            self.0.bytes[begins + 1] = WITH_BALANCE;
            for place in [found.balance, found.balance_other] {
                self.0.bytes.extend_from_slice(&place.to_le_bytes());
            }
        }
        self.0.end();
    }
}

// The keys.

/// The keys of a check, as the script finds them; 0: none.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    pub(super) key: u16,
    pub(super) other: u16,
    pub(super) overflow: u16,
    pub(super) overflow_other: u16,
    pub(super) balance: u16,
    pub(super) balance_other: u16,
}

/// The keys of a call, in order.
#[derive(Clone, Default)]
pub(super) struct StateKeys(Packed);

impl StateKeys {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.iter()
    }

    /// The keys of a check.
    pub(super) fn find(
        &mut self,
        rules: &Encoder,
        rule_args: &RuleArgs,
        check: &Check,
        with: Option<Fingerprint>,
        overflow: Option<Fingerprint>,
        from: usize,
    ) -> Found {
        let keys = &rules.keyspace.keys;
        let with = with.filter(|_| !rules.is_with(check.rule()));
        let with = with.map(|with| keys.names(with));
        let family = rule_args.family;
        let (key, other) = self.both(rules, rule_args, family, check.key(), with.as_ref(), from);
        let (overflow, overflow_other) = overflow.map_or((0, 0), |overflow| {
            let with = match with {
                // It lies in the hash slot of this client.
                None if rules.keyspace.partition != Partition::One => {
                    let (newer, older) = keys.names(check.key());
                    Some((
                        newer.hash_slot_tag(),
                        older.map(|older| older.hash_slot_tag()),
                    ))
                }
                with => with,
            };
            self.both(rules, rule_args, family, overflow, with.as_ref(), from)
        });
        Found {
            key,
            other,
            overflow,
            overflow_other,
            ..Found::default()
        }
    }

    /// The number of the key that says since when the server has the states of this hash slot.
    pub(super) fn since(
        &mut self,
        rules: &Encoder,
        check: &Check,
        with: Option<Fingerprint>,
        from: usize,
    ) -> u16 {
        let start = self.0.bytes.len();
        let with = with.unwrap_or(check.key());
        rules.keyspace.write_since(&mut self.0.bytes, with);
        self.number_of(start, from)
    }

    /// The keys of the balance of a check, in the hash slot of its state.
    pub(super) fn balance(
        &mut self,
        rules: &Encoder,
        rule_args: &RuleArgs,
        check: &Check,
        from: usize,
    ) -> (u16, u16) {
        self.both(rules, rule_args, BALANCES, check.key(), None, from)
    }

    /// The numbers of a state's names, counted from 1: of two secrets that by the newer, then that by the older. `with` has the names
    /// whose hash slots they lie in, if those are not their own.
    fn both(
        &mut self,
        rules: &Encoder,
        rule_args: &RuleArgs,
        family: u8,
        key: Fingerprint,
        with: Option<&(Name, Option<Name>)>,
        from: usize,
    ) -> (u16, u16) {
        let (newer, older) = rules.keyspace.keys.names(key);
        let mut number = |name: &Name, with: Option<&Name>| {
            let start = self.0.bytes.len();
            (rules.keyspace).write_name(&mut self.0.bytes, &rule_args.name, family, name, with);
            self.number_of(start, from)
        };
        let first = number(&newer, with.map(|(newer, _)| newer));
        let with_older = with.and_then(|(_, older)| older.as_ref());
        (first, older.map_or(0, |older| number(&older, with_older)))
    }

    /// The number of the key that was just written behind the others: that of one from `from` on if it is there.
    fn number_of(&mut self, start: usize, from: usize) -> u16 {
        let (there, new) = self.0.bytes.split_at(start);
        for place in from..self.0.ends.len() {
            let begins = place.checked_sub(1).map_or(0, |before| self.0.ends[before]);
            if there[begins..self.0.ends[place]] == *new {
                self.0.bytes.truncate(start);
                return number(place);
            }
        }
        self.0.end();
        number(self.0.ends.len() - 1)
    }
}

/// The number by which the script finds a key: there was room, so there are fewer than 65 535.
fn number(place: usize) -> u16 {
    place as u16 + 1
}
