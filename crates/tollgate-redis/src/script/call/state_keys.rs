//! The keys of a call: each once for a request, and found by its number.

use tollgate_core::{Check, store::Fingerprint};

use crate::{
    keys::{
        keys::Name,
        keyspace::{Packed, Partition},
    },
    script::{
        encoder::Encoder,
        rule_args::{BALANCES, RuleArgs},
    },
};

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

impl Found {
    /// The same with the balance of the key.
    pub(super) fn with_balance(mut self, (newer, older): (u16, u16)) -> Self {
        (self.balance, self.balance_other) = (newer, older);
        self
    }
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
                // It lies in the slot of this client.
                None if rules.keyspace.partition != Partition::One => {
                    let (newer, older) = keys.names(check.key());
                    Some((newer.slot_tag(), older.map(|older| older.slot_tag())))
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

    /// The number of the key that says since when the server has the states of this slot.
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

    /// The keys of the balance of a check, in the slot of its state.
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
