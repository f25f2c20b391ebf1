//! Where what a process keeps of a key is.

use std::fmt;

use tollgate_core::{Check, Fingerprint};

/// A key under one quota of one rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableKey {
    /// The halves of its fingerprint: as one number they would take 16 bytes at a time.
    pub(super) key: [u64; 2],
    pub(super) rule: u16,
    pub(super) plan: u16,
}

impl TableKey {
    pub(crate) fn new(rule: u16, plan: u16, key: Fingerprint) -> Self {
        let bits = key.bits();
        Self {
            key: [(bits >> 64) as u64, bits as u64],
            rule,
            plan,
        }
    }

    pub(crate) fn rule(&self) -> u16 {
        self.rule
    }

    pub(crate) fn plan(&self) -> u16 {
        self.plan
    }

    pub(crate) fn key(&self) -> Fingerprint {
        let [high, low] = self.key;
        Fingerprint::from_bits(u128::from(high) << 64 | u128::from(low))
    }

    /// A byte of the key.
    pub(super) fn tag(&self) -> u8 {
        (self.key[1] >> 56) as u8
    }
}

/// Where what is kept of a check's key is.
pub(crate) fn table_key_of(check: &Check) -> TableKey {
    TableKey::new(check.rule(), check.plan(), check.key())
}

/// The check of nothing that a slot stands for.
pub(crate) fn check_of(slot: TableKey) -> Check {
    Check::new(slot.rule(), slot.key(), 0).with_plan(slot.plan())
}

/// Without the key.
impl fmt::Debug for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableKey")
            .field("rule", &self.rule)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
