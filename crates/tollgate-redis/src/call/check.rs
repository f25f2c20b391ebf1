//! A check, as `prelude.lua` says.

use tollgate_core::{Check, MAX_UNITS};

use crate::{
    call::{Call, names::Places},
    encode::Encoder,
    rule_line::{RuleLine, double},
};

/// What the script does with a check.
#[derive(Clone, Copy)]
pub(super) enum What {
    Take = 0,
    LeaseQuery = 1,
    GiveBack = 2,
    TakeMore = 3,
    Forget = 4,
    Debit = 5,
    Close = 6,
    Lend = 7,
}

/// Flags of a check beside what the script does with it: there may be another key, states move to the first one, the
/// answer tells of new keys, and there may be keys of the format before.
const OTHER: u8 = 8;
const MOVES: u8 = 16;
const TELLS: u8 = 32;
const OLDER: u8 = 64;

impl Call {
    pub(super) fn check(
        &mut self,
        what: What,
        line: &RuleLine,
        check: &Check,
        key: u16,
        quota: &[u8],
    ) {
        self.rules |= line.bit;
        let bytes = &mut self.args.bytes;
        bytes.extend_from_slice(&[what as u8, line.role, 0]);
        bytes.extend_from_slice(&key.to_le_bytes());
        // What is above never fits either.
        bytes.extend_from_slice(&double(check.cost().min(MAX_UNITS + 1)));
        bytes.extend_from_slice(&check.rule().to_le_bytes());
        bytes.extend_from_slice(&line.instead.to_le_bytes());
        bytes.extend_from_slice(quota);
    }

    /// Ends a check, with its other keys if it has any.
    pub(super) fn end(&mut self, rules: &Encoder, places: Places, tells: bool) {
        let older = places.older != [0; 4];
        if tells || older || places.other > 0 || places.overflow > 0 {
            let begins = self.args.ends.last().copied().unwrap_or(0);
            let flags = [
                OTHER,
                if rules.keyspace.keys.moves() {
                    MOVES
                } else {
                    0
                },
                if tells { TELLS } else { 0 },
                if older { OLDER } else { 0 },
            ];
            self.args.bytes[begins] += flags.iter().sum::<u8>();
            for place in [places.other, places.overflow, places.overflow_other] {
                self.args.bytes.extend_from_slice(&place.to_le_bytes());
            }
            if older {
                let places = places.older.map(u16::to_le_bytes);
                self.args.bytes.extend_from_slice(places.as_flattened());
            }
        }
        self.args.end();
    }
}
