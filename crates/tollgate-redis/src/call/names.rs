//! The keys of a call: each once for a request, and found by its number.

use tollgate_core::{Check, Fingerprint};

use crate::{call::Call, encode::Encoder, keys::Name, rule_line::RuleLine};

/// The keys of a check, as the script finds them; 0: none.
#[derive(Clone, Copy, Default)]
pub(super) struct Places {
    pub(super) key: u16,
    pub(super) other: u16,
    pub(super) overflow: u16,
    pub(super) overflow_other: u16,
}

impl Call {
    /// The keys of a check.
    pub(super) fn places(
        &mut self,
        rules: &Encoder,
        line: &RuleLine,
        check: &Check,
        with: Option<Fingerprint>,
        overflow: Option<Fingerprint>,
        from: usize,
    ) -> Places {
        let with = with.filter(|_| !rules.is_with(check.rule()));
        let (key, other) = self.both(rules, line, check.key(), with, from);
        let (overflow, overflow_other) = match overflow {
            Some(overflow) => self.both(rules, line, overflow, with, from),
            None => (0, 0),
        };
        Places {
            key,
            other,
            overflow,
            overflow_other,
        }
    }

    /// The numbers of a state's names: of two secrets that by the newer, then that by the older.
    fn both(
        &mut self,
        rules: &Encoder,
        line: &RuleLine,
        key: Fingerprint,
        with: Option<Fingerprint>,
        from: usize,
    ) -> (u16, u16) {
        let keys = &rules.keyspace.keys;
        let (newer, older) = keys.names(key);
        let (with_newer, with_older) = with.map(|with| keys.names(with)).unzip();
        let newer = self.key(rules, line, &newer, with_newer.as_ref(), from);
        let older = older.map_or(0, |older| {
            self.key(rules, line, &older, with_older.flatten().as_ref(), from)
        });
        (newer, older)
    }

    /// The number of a key, counted from 1: that of one from `from` on if it is there.
    fn key(
        &mut self,
        rules: &Encoder,
        line: &RuleLine,
        name: &Name,
        with: Option<&Name>,
        from: usize,
    ) -> u16 {
        let start = self.keys.bytes.len();
        rules
            .keyspace
            .write_name(&mut self.keys.bytes, &line.name, line.family, name, with);
        let (there, new) = self.keys.bytes.split_at(start);
        for place in from..self.keys.ends.len() {
            let begins = place
                .checked_sub(1)
                .map_or(0, |before| self.keys.ends[before]);
            if there[begins..self.keys.ends[place]] == *new {
                self.keys.bytes.truncate(start);
                return number(place);
            }
        }
        self.keys.end();
        number(self.keys.ends.len() - 1)
    }
}

/// The number by which the script finds a key: there was room, so there are fewer than 65 535.
fn number(place: usize) -> u16 {
    place as u16 + 1
}
