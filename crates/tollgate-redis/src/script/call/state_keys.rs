//! The keys of a call: each once for a request, and found by its number.

use tollgate_core::{Check, store::Fingerprint};

use crate::{
    keys::{keys::Name, keyspace::Partition, packed::Packed},
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
        let with = with.filter(|_| !rules.is_with(check.rule()));
        let family = rule_args.family;
        let (key, other) = self.both(rules, rule_args, family, check.key(), with, from);
        let one_slot = rules.keyspace.partition == Partition::One;
        let (overflow, overflow_other) = overflow.map_or((0, 0), |overflow| match with {
            None if !one_slot => {
                self.with_overflow_bucket(rules, rule_args, overflow, check.key(), from)
            }
            _ => self.both(rules, rule_args, family, overflow, with, from),
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

    /// The numbers of a state's names: of two secrets that by the newer, then that by the older.
    fn both(
        &mut self,
        rules: &Encoder,
        rule_args: &RuleArgs,
        family: u8,
        key: Fingerprint,
        with: Option<Fingerprint>,
        from: usize,
    ) -> (u16, u16) {
        let keys = &rules.keyspace.keys;
        let (newer, older) = keys.names(key);
        let (with_newer, with_older) = with.map(|with| keys.names(with)).unzip();
        let newer = self.key(rules, rule_args, family, &newer, with_newer.as_ref(), from);
        let older = older.map_or(0, |older| {
            self.key(
                rules,
                rule_args,
                family,
                &older,
                with_older.flatten().as_ref(),
                from,
            )
        });
        (newer, older)
    }

    /// The same of an overflow bucket, which lies in the slot of this client.
    fn with_overflow_bucket(
        &mut self,
        rules: &Encoder,
        rule_args: &RuleArgs,
        overflow: Fingerprint,
        client: Fingerprint,
        from: usize,
    ) -> (u16, u16) {
        let keys = &rules.keyspace.keys;
        let (newer, older) = keys.names(overflow);
        let (client, client_older) = keys.names(client);
        let family = rule_args.family;
        let tag = client.slot_tag();
        let newer = self.key(rules, rule_args, family, &newer, Some(&tag), from);
        let older = older.zip(client_older).map_or(0, |(older, client)| {
            self.key(
                rules,
                rule_args,
                family,
                &older,
                Some(&client.slot_tag()),
                from,
            )
        });
        (newer, older)
    }

    /// The number of a key, counted from 1: that of one from `from` on if it is there.
    fn key(
        &mut self,
        rules: &Encoder,
        rule_args: &RuleArgs,
        family: u8,
        name: &Name,
        with: Option<&Name>,
        from: usize,
    ) -> u16 {
        let start = self.0.bytes.len();
        rules
            .keyspace
            .write_name(&mut self.0.bytes, &rule_args.name, family, name, with);
        self.number_of(start, from)
    }

    /// The number of the key that was just written behind the others.
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
