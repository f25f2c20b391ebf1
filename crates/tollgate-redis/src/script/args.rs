//! The arguments and the keys of a call, as `prelude.lua` documents them. Each key is there once for a request, and found by its number.

use std::time::Duration;

use tollgate_core::{Check, MAX_UNITS, Tick, store::Fingerprint};
use tollgate_prefilter::SlotMessage;

use crate::{
    connection::command::Command,
    keys::{keys::Name, keyspace::Partition},
    script::{
        encoder::{
            BALANCES, DURABLE, Encoder, IDENTITY, RuleArgs, WAITS, WITH_BALANCE, double, set_window,
        },
        text::{DECIDE, DECIDE_WITH_RECORD},
    },
};

/// The latest time that is passed to the script, in the year 2112. With the longest time to fill a bucket it is below 2^53.
pub(super) const LAST: Tick = 1 << 52;

/// What the script does with a check.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
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
/// It may owe units.
const MAY_OWE: u8 = 128;

/// Bits of the byte that says what follows a check: another check of its request; its own id, behind its numbers.
pub(super) const MORE: u8 = 1;
const HAS_ID: u8 = 2;
/// The bytes of a check up to the end of its quota.
const CHECK: usize = 13 + IDENTITY;

/// A call of the script: its keys and arguments, in order. One call may carry many requests.
#[derive(Clone)]
pub(crate) struct ScriptCall {
    /// As it is sent.
    pub(crate) command: Command,
    /// The time, as well as the caller knows it: for the windows of calendars.
    now: Tick,
    /// Of the request at hand: the number of its first key.
    pub(super) first_key: usize,
    /// And the client that decides about the hash slot, if it is another than each one's own.
    pub(super) with: Option<Fingerprint>,
    /// What is known to be used of [durable](tollgate_core::Rule::durable) rules by keys of the next request.
    pub(crate) bases: Vec<(Check, u64)>,
}

impl ScriptCall {
    /// A call by the server's clock, which shows the time of this machine.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::by_server(tollgate_core::wall_clock())
    }

    /// A call by the server's clock, which shows this time or one near to it.
    pub(crate) fn by_server(now: Tick) -> Self {
        Self::by(&[], now)
    }

    /// A call by the caller's clock, for servers that refuse `TIME` in scripts. States are kept for `margin`
    /// longer than by that clock, because the server forgets by its own.
    pub(crate) fn at(now: Tick, margin: Duration) -> Self {
        let margin = u64::try_from(margin.as_millis()).unwrap_or(u64::MAX);
        let time = [double(now.min(LAST)), double(margin.min(LAST))];
        Self::by(time.as_flattened(), now)
    }

    fn by(time: &[u8], now: Tick) -> Self {
        Self {
            command: Command::checks(&DECIDE, time),
            now,
            first_key: 0,
            with: None,
            bases: Vec::new(),
        }
    }

    /// The same behind a step of the record of a reservation. It travels alone.
    pub(crate) fn behind_record(mut self, record: &[u8], step: &str) -> Self {
        let command = &mut self.command;
        (command.script, command.key_places) = (Some(&DECIDE_WITH_RECORD), None);
        command.rules = 0;
        command.keys.push(record);
        command.args.push(step.as_bytes());
        self
    }

    /// The keys, in order.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.command.keys.iter()
    }

    /// The arguments, in order.
    pub(crate) fn args(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.command.args.iter()
    }

    /// The answers to the checks that were added: two to one of a rule that blocks keys.
    pub(crate) fn checks(&self) -> usize {
        self.command.answers
    }

    /// Begins a check on these keys.
    pub(super) fn begin<'a>(
        &'a mut self,
        rules: &'a Encoder,
        what: Operation,
        rule_args: &'a RuleArgs,
        quota: &[u8; IDENTITY],
        check: &Check,
        keys: CheckKeys,
    ) -> CheckWriter<'a> {
        self.command.rules |= rule_args.bit;
        let begins = self.command.args.bytes.len();
        let mut writer = CheckWriter {
            call: self,
            rules,
            rule_args,
            check: *check,
            begins,
            keys,
        };
        let may_owe = matches!(what, Operation::Take | Operation::Query) && rule_args.debt() > 0;
        let flags = if may_owe { MAY_OWE } else { 0 };
        writer.add_bytes(&[what as u8 + flags, rule_args.role, 0]);
        writer.add_keys(&[keys.key]);
        // A larger cost never fits either.
        writer.add_bytes(&double(check.cost().min(MAX_UNITS + 1)));
        writer.add_bytes(quota);
        if let Some(calendar) = rule_args.calendar_of(check.plan()) {
            let now = writer.call.now.min(LAST);
            set_window(writer.identity(), &calendar, now);
        }
        if rule_args.wait.is_some() && !matches!(what, Operation::Reset) {
            writer.identity()[0] = WAITS;
        }
        writer
    }

    /// The keys of a check; `overflow` is the bucket for a client without a state.
    pub(super) fn find(
        &mut self,
        rules: &Encoder,
        rule_args: &RuleArgs,
        check: &Check,
        overflow: Option<Fingerprint>,
    ) -> CheckKeys {
        let keys = &rules.keyspace.keys;
        let with = self
            .with
            .filter(|_| !rules.is_with(check.rule()))
            .map(|with| keys.names(with));
        let family = rule_args.family;
        let [key, other] = self.both(rules, rule_args, family, check.key(), with.as_ref());
        let overflow = overflow.map(|overflow| {
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
            self.both(rules, rule_args, family, overflow, with.as_ref())
        });
        CheckKeys {
            key,
            other,
            overflow: overflow.unwrap_or_default(),
            balance: [0; 2],
        }
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
    ) -> [u16; 2] {
        let (newer, older) = rules.keyspace.keys.names(key);
        let mut number = |name: &Name, with: Option<&Name>| {
            let keys = &mut self.command.keys;
            let start = keys.bytes.len();
            (rules.keyspace).write_name(&mut keys.bytes, &rule_args.name, family, name, with);
            self.number_of(start)
        };
        let first = number(&newer, with.map(|(newer, _)| newer));
        let with_older = with.and_then(|(_, older)| older.as_ref());
        [first, older.map_or(0, |older| number(&older, with_older))]
    }

    /// The number of the key that was just written behind the others: that of an earlier one of the request if it is there.
    fn number_of(&mut self, start: usize) -> u16 {
        let keys = &mut self.command.keys;
        let new = &keys.bytes[start..];
        let known = (self.first_key..keys.len()).find(|place| keys.get(*place) == new);
        match known {
            Some(_) => keys.bytes.truncate(start),
            None => keys.end(),
        }
        let place = known.unwrap_or(keys.len() - 1);
        // There was room, so there are fewer than 65 535.
        place as u16 + 1
    }
}

/// The keys of a check, as the script finds them; 0: none. Each with its name by the older of two secrets.
#[derive(Clone, Copy, Default)]
pub(super) struct CheckKeys {
    pub(super) key: u16,
    pub(super) other: u16,
    overflow: [u16; 2],
    balance: [u16; 2],
}

impl CheckKeys {
    /// One without another name.
    pub(super) fn of(key: u16) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }
}

/// A check that was begun. What follows its quota is added, and then it is ended.
#[must_use = "it has no end yet"]
pub(super) struct CheckWriter<'a> {
    call: &'a mut ScriptCall,
    rules: &'a Encoder,
    rule_args: &'a RuleArgs,
    check: Check,
    /// Where it begins in the bytes of the arguments.
    begins: usize,
    keys: CheckKeys,
}

impl CheckWriter<'_> {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.call.command.args.bytes[self.begins..]
    }

    /// The bytes of its quota, and what is behind them.
    fn identity(&mut self) -> &mut [u8] {
        &mut self.bytes()[CHECK - IDENTITY..]
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.call.command.args.bytes.extend_from_slice(bytes);
    }

    /// Adds the numbers of keys, which move with those of other calls in front.
    fn add_keys(&mut self, keys: &[u16]) {
        for key in keys {
            let place = self.call.command.args.bytes.len();
            let places = self.call.command.key_places.as_mut();
            // 0 is none.
            if let Some(places) = places.filter(|_| *key > 0) {
                places.push(place);
            }
            self.add_bytes(&key.to_le_bytes());
        }
    }

    /// Adds the part of a check that follows its quota.
    pub(super) fn add(&mut self, tail: &[[u8; 8]]) {
        self.add_bytes(tail.as_flattened());
    }

    /// Makes the check one of a durable rule, as `calendar.lua` reads it: with the key that says since when the server has the states of
    /// this hash slot, and with what is known to be used if it takes units.
    pub(super) fn add_durable(&mut self, base: Option<Option<u64>>, may_owe: bool) {
        self.identity()[0] = DURABLE;
        let with = self.call.with.unwrap_or(self.check.key());
        let names = &mut self.call.command.keys.bytes;
        let start = names.len();
        self.rules.keyspace.write_since(names, with);
        let since = self.call.number_of(start);
        self.add_keys(&[since]);
        if let Some(base) = base {
            let base = base.map_or(-1.0, |used| match used.min(MAX_UNITS) as f64 {
                used if may_owe => -2.0 - used,
                used => used,
            });
            self.add_bytes(&base.to_le_bytes());
        }
    }

    /// Adds the id of the check, and how its rule takes ids.
    pub(super) fn add_id(&mut self, id: [u8; 8], terms: [u8; 9]) {
        self.bytes()[2] |= HAS_ID;
        self.add_bytes(&id);
        self.add_bytes(&terms);
    }

    /// Adds what a process says about slots to a take, as `concurrent.lua` reads it.
    pub(super) fn add_slots(
        &mut self,
        message: &SlotMessage,
        of_reservation: bool,
        may_wait: bool,
    ) {
        self.add_bytes(&message.owner.0.to_le_bytes());
        self.add_bytes(&double(message.seq));
        self.add_bytes(&message.lo.to_le_bytes());
        self.add_bytes(&message.hi.to_le_bytes());
        let flags = u8::from(message.is_exact) + u8::from(of_reservation) + 4 * u8::from(may_wait);
        self.add_bytes(&[flags]);
    }

    /// Adds the setting of its rule if that blocks keys, with how many settled requests count.
    pub(super) fn add_block(&mut self, settled: u16) {
        let Some((setting, behind)) = &self.rule_args.block else {
            return;
        };
        self.bytes()[0] += BLOCKS;
        self.add_bytes(setting);
        self.add_bytes(&settled.to_le_bytes());
        self.add_bytes(behind);
        self.call.command.answers += 1;
    }

    /// The balance of the key counts too. It lies in the hash slot of the state.
    pub(super) fn find_balance(&mut self) {
        let (rules, rule_args, key) = (self.rules, self.rule_args, self.check.key());
        self.keys.balance = self.call.both(rules, rule_args, BALANCES, key, None);
    }

    /// Ends the check, with its other keys if it has any. Gives where it begins.
    pub(super) fn end(mut self, reports_new: bool) -> usize {
        let CheckKeys {
            other,
            overflow: [overflow, overflow_other],
            balance,
            ..
        } = self.keys;
        if reports_new || other > 0 || overflow > 0 {
            let moves = u8::from(self.rules.keyspace.keys.moves()) * MOVES;
            self.bytes()[0] += OTHER + moves + u8::from(reports_new) * REPORTS_NEW;
            self.add_keys(&[other, overflow, overflow_other]);
        }
        if balance[0] > 0 {
            self.bytes()[1] = WITH_BALANCE;
            self.add_keys(&balance);
        }
        self.call.command.args.end();
        self.call.command.answers += 1;
        self.begins
    }
}
