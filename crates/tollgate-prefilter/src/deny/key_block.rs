//! What a process knows of a key that is counted towards blocks: whether it is blocked, and the denials by the deny cache that the
//! store has not counted yet.
//!
//! The deny cache answers for a second, so a client that does not stop costs a call a second. What it denies counts here, and the next
//! call for the key takes it along: when the second is over, or at once when what the store has counted and what is counted here
//! reach the block. So a client of one process is blocked at exactly that denial.
//!
//! A block is believed for a second too, so that a reset is seen. While the store does not answer, it stands until its end.

use tollgate_core::{Check, Retry, Source, Tick, Verdict, algorithm::Assessment};

use crate::deny::denials::TRUST;

/// What is known of a key. Times are of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyBlock {
    learned_at: Tick,
    /// Until when it is blocked, and by its how manieth block.
    pub(crate) until: Tick,
    level: u8,
    /// Until when requests of this cost are denied, by the quota too.
    denied_until: Tick,
    cost: u64,
    /// Denials that count towards the next block: those that the store has counted, and those since.
    stored: u32,
    pub(crate) local: u16,
}

impl KeyBlock {
    /// The denial of a check by the block, if the store has said so of this cost within the last second.
    pub(crate) fn deny(&self, check: &Check, now: Tick) -> Option<Verdict> {
        let is_believed = now < self.learned_at.saturating_add(TRUST) && now >= self.learned_at;
        let is_known = check.cost() <= self.cost && is_believed;
        let until = self.denied_until.max(self.until);
        self.verdict(check, now, until).filter(|_| is_known)
    }

    /// The same until its end, where the store does not answer.
    pub(crate) fn stands(&self, check: &Check, now: Tick) -> Option<Verdict> {
        self.verdict(check, now, self.until)
    }

    fn verdict(&self, check: &Check, now: Tick, until: Tick) -> Option<Verdict> {
        let left = self.until.checked_sub(now).filter(|left| *left > 0)?;
        let retry = Retry::after_micros(until - now);
        let answer = Assessment::new(false, 0, left, retry);
        let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::DenyCache);
        (check.cost() > 0).then(|| verdict.with_block_level(self.level))
    }

    /// Whether this process may deny the next request by itself: one more denial begins no block. If so, `counts` it.
    pub(crate) fn may_deny(&mut self, after: u32, counts: bool) -> bool {
        let may = self.stored + u32::from(self.local) + 1 < after;
        self.local += u16::from(may && counts);
        may
    }

    /// Takes over what the store said of `cost` units: its block, and `counted` denials towards the next one.
    pub(crate) fn learn(&mut self, now: Tick, cost: u64, counted: u32, verdict: &Verdict) {
        *self = Self {
            learned_at: now,
            stored: counted,
            local: self.local,
            ..Self::default()
        };
        if let Some(level) = verdict.block_level() {
            self.local = 0;
            self.level = level;
            self.until = now.saturating_add(verdict.reset_after_ticks());
            if let Retry::After(wait) = verdict.retry() {
                let wait = Tick::try_from(wait.as_micros()).unwrap_or(Tick::MAX);
                (self.cost, self.denied_until) = (cost, now.saturating_add(wait));
            }
        }
    }
}
