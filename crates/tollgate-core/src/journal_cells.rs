//! The accounts that requests use at present, each in a cell of its own: a request finds it without the table of all accounts.
//!
//! A ledger takes the units out of all cells, and those of an account that needs a cell which another one has go to the table.

use crate::{
    check::Check,
    key::Fingerprint,
    sync::{AtomicU64, BriefGuard, BriefMutex, Ordering, lock_briefly, try_lock},
    time::Tick,
    variable_quota::CheckQuota,
};

/// At least 64 KiB of them, and at most 8 MiB.
const LEAST: usize = 1 << 10;
const MOST: usize = 1 << 17;

pub(crate) struct JournalCells(Box<[Cell]>);

/// One cache line.
#[repr(align(64))]
struct Cell {
    /// Of which key and rule it is; 0 if of none. It changes under the lock.
    tag: [AtomicU64; 2],
    sum: BriefMutex<CellSum>,
}

/// What a key has used in its present window.
#[derive(Clone, Copy)]
pub(crate) struct CellSum {
    pub(crate) rule: u32,
    /// That of the check which has the window.
    quota: CheckQuota,
    pub(crate) begin: Tick,
    pub(crate) end: Tick,
    pub(crate) units: i64,
}

impl CellSum {
    const NONE: Self = Self {
        rule: 0,
        quota: CheckQuota::of_plan(0),
        begin: 0,
        end: 0,
        units: 0,
    };
}

impl Cell {
    fn is_of(&self, tag: [u64; 2]) -> bool {
        self.tag[0].load(Ordering::Relaxed) == tag[0]
            && self.tag[1].load(Ordering::Relaxed) == tag[1]
    }

    fn set(&self, tag: [u64; 2]) {
        self.tag[0].store(tag[0], Ordering::Relaxed);
        self.tag[1].store(tag[1], Ordering::Relaxed);
    }

    fn add(
        &self,
        mut sum: BriefGuard<'_, CellSum>,
        tag: [u64; 2],
        check: &Check,
        at: Tick,
        units: i64,
    ) -> bool {
        let is_here =
            self.is_of(tag) && sum.quota == check.quota() && (sum.begin..sum.end).contains(&at);
        if is_here {
            sum.units = sum.units.saturating_add(units);
        }
        is_here
    }

    /// Once another thread is done. Not inlined: registers would be saved for it with each request.
    #[inline(never)]
    fn add_later(&self, tag: [u64; 2], check: &Check, at: Tick, units: i64) -> bool {
        self.add(lock_briefly(&self.sum), tag, check, at, units)
    }

    fn spill(&self, sum: &mut CellSum, spill: impl FnOnce(Fingerprint, CellSum)) {
        if sum.units != 0 {
            let [low, high] = self.tag.each_ref().map(|it| it.load(Ordering::Relaxed));
            let subject = u128::from(low ^ salt(sum.rule)) | u128::from(high) << 64;
            spill(Fingerprint::from_bits(subject), *sum);
            sum.units = 0;
        }
    }
}

fn tag(rule: u32, key: Fingerprint) -> [u64; 2] {
    let bits = key.bits();
    [bits as u64 ^ salt(rule), (bits >> 64) as u64]
}

/// In memory, a key is the same under each rule.
fn salt(rule: u32) -> u64 {
    u64::from(rule).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl JournalCells {
    /// For so many accounts, of which fewer are in use at once. A power of two, so that a cell is found by a mask.
    pub(crate) fn new(accounts: usize) -> Self {
        let count = (accounts / 2).clamp(LEAST, MOST).next_power_of_two();
        let cells = (0..count).map(|_| Cell {
            tag: [AtomicU64::new(0), AtomicU64::new(0)],
            sum: BriefMutex::new(CellSum::NONE),
        });
        Self(cells.collect())
    }

    fn cell(&self, tag: [u64; 2]) -> Option<&Cell> {
        self.0.get(tag[0] as usize & (self.0.len() - 1))
    }

    /// Whether a key has a cell.
    pub(crate) fn has(&self, rule: u32, key: Fingerprint) -> bool {
        let tag = tag(rule, key);
        self.cell(tag).is_some_and(|cell| cell.is_of(tag))
    }

    /// Adds units of the window at this time, if the key has a cell with it.
    pub(crate) fn add(&self, rule: u32, check: &Check, at: Tick, units: i64) -> bool {
        let tag = tag(rule, check.key());
        let Some(cell) = self.cell(tag) else {
            return false;
        };
        match try_lock(&cell.sum) {
            Some(sum) => cell.add(sum, tag, check, at, units),
            None => cell.add_later(tag, check, at, units),
        }
    }

    /// Gives the key of a check a cell with its present window. `spill` is handed what is in the cell, under its lock, so that no units
    /// are out of sight meanwhile.
    pub(crate) fn put(
        &self,
        rule: u32,
        check: &Check,
        [begin, end]: [Tick; 2],
        spill: impl FnOnce(Fingerprint, CellSum),
    ) {
        let tag = tag(rule, check.key());
        if let Some(cell) = self.cell(tag) {
            let mut sum = lock_briefly(&cell.sum);
            cell.spill(&mut sum, spill);
            cell.set(tag);
            *sum = CellSum {
                rule,
                quota: check.quota(),
                begin,
                end,
                units: 0,
            };
        }
    }

    /// Takes the units out of all cells, and frees those without.
    pub(crate) fn spill(&self, mut spill: impl FnMut(Fingerprint, CellSum)) {
        for cell in self.0.iter().filter(|cell| !cell.is_of([0; 2])) {
            let mut sum = lock_briefly(&cell.sum);
            match sum.units {
                0 => {
                    cell.set([0; 2]);
                    *sum = CellSum::NONE;
                }
                _ => cell.spill(&mut sum, &mut spill),
            }
        }
    }
}
