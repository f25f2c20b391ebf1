//! Denials that need no call: what an earlier denial has taught, and blocks.
//!
//! A bucket's arrival time only grows, and so does the count of a window. So a denial teaches a bound that stays true for
//! as long as nothing is given back. What another process gives back is not seen here; a bound is believed for a short time
//! only, and then one request queries the store again.
//!
//! A denial is answered only where it is also known when the units fit. While something is left, others may take it, and the wait is
//! longer then: the store says by how much. So a bucket is denied here while nothing is left of it, a window until its end, and of
//! what has other quotas, slides, or begins with what is owed only a single unit.
//!
//! Times are by this process's clock, from when the query was **sent**: the server has decided later than that, so what
//! is refused here it would refuse as well.

use std::time::Duration;

use tollgate_core::{
    AlgorithmKind, Check, Quota, Retry, Source, Tick, Verdict,
    algorithm::{Algorithm, Assessment, DenyBound, Gcra},
    micros,
};

use crate::table::DenialWords;

/// For how long a bound is believed: 1 s. A client that is over its limit costs Redis one call in that time.
pub(crate) const TRUST: Tick = 1_000_000;

/// An answer that took longer, in µs, teaches nothing.
const LATEST: Tick = 0xffff;

/// How the denials of a quota are remembered.
#[derive(Clone, Debug)]
pub(crate) enum Denials {
    /// By the arrival time, which says when any cost fits. From empty to full it takes `fill` µs.
    Bucket { quota: Gcra, fill: Tick },
    /// By the units left until the window is over, which says it of any cost.
    Window { limit: u64 },
    /// By when a single unit fits. From that nothing follows for other costs.
    Unit,
    /// Not at all; also not where denials begin blocks, which the store counts.
    None,
}

impl Denials {
    /// Those of a quota; `has_plans`: its rule has other quotas too. `wait` is how long requests wait for it, `has_debt` whether units
    /// may be owed: then those of a window do not come back all at once.
    pub(crate) fn new(
        quota: &Quota,
        has_plans: bool,
        wait: Option<Duration>,
        has_debt: bool,
    ) -> Self {
        if quota.algorithm() == AlgorithmKind::FixedWindow && !has_debt {
            return Self::Window {
                limit: quota.limit(),
            };
        }
        match Gcra::new(quota) {
            // Of several, the one that wrote the state says when the units fit, by its own rate. From that nothing follows
            // for the arrival time under this one.
            Some(bucket) if !has_plans => Self::Bucket {
                quota: match wait {
                    Some(at_most) => bucket.waiting(at_most),
                    None => bucket,
                },
                fill: fill(quota),
            },
            // When a unit fits depends on for how long the request may wait.
            Some(_) if wait.is_some() => Self::None,
            // Slots are free as soon as a request ends, whatever a typical time says.
            _ if quota.algorithm() == AlgorithmKind::Concurrent => Self::None,
            _ => Self::Unit,
        }
    }

    /// Denies `cost` units, if what was learned says so for a request that waits for `patience` µs at most, and says when they fit. Also
    /// whether what is left is known: of a window others may have taken some since.
    #[inline]
    pub(crate) fn deny(
        &self,
        [until, rest, meta]: DenialWords,
        now: Tick,
        cost: u64,
        patience: Tick,
    ) -> Option<(Assessment, bool)> {
        // When it was learned in ms, and by how much later than the query was sent the answer came.
        let (cached_at, late) = ((meta >> 16) * 1_000, meta & LATEST);
        if cost == 0 || now >= cached_at.saturating_add(TRUST) || now < cached_at {
            return None;
        }
        match self {
            Self::Bucket { quota, fill } => {
                let bound = DenyBound(until, rest);
                let denied = if quota.waits() {
                    // Nor may another request queue up for a unit.
                    quota.deny_within(bound, now, 1, Tick::MAX)?;
                    quota.deny_within(bound, now, cost, patience)?
                } else {
                    assess(quota, *fill, bound, now, cost)?
                };
                // Rather too late than too early.
                (denied.remaining == 0).then(|| (later(denied, late), true))
            }
            Self::Window { limit } => {
                let wait = until.checked_sub(now).filter(|wait| *wait > 0)?;
                (cost > rest).then(|| (denial(rest, wait + late, cost > *limit), rest == 0))
            }
            Self::Unit => {
                let wait = until.checked_sub(now).filter(|wait| *wait > 0)?;
                (cost == 1).then(|| (denial(0, wait + late, false), true))
            }
            Self::None => None,
        }
    }

    /// What a denial by the store teaches of a query that was sent at `sent` and answered at `now`, if anything.
    pub(crate) fn learn(
        &self,
        sent: Tick,
        now: Tick,
        cost: u64,
        verdict: &Verdict,
    ) -> Option<DenialWords> {
        let after = |wait| sent.saturating_add(micros(wait));
        let (until, rest) = match (self, verdict.retry()) {
            (Self::Bucket { quota, .. }, retry) => {
                let retry = match retry {
                    // It depends on for how long the request may wait.
                    _ if quota.waits() => None,
                    Retry::After(wait) => Some((after(wait), cost)),
                    _ => None,
                };
                let earliest = quota.earliest(after(verdict.reset_after()), retry);
                (earliest.tat, u64::from(earliest.rest))
            }
            (Self::Window { .. }, _) => (after(verdict.reset_after()), verdict.remaining()),
            (Self::Unit, Retry::After(wait)) if cost == 1 => (after(wait), 0),
            (Self::Unit | Self::None, _) => return None,
        };
        // A process that was stopped in between has learned nothing that is worth telling.
        let late = now.checked_sub(sent).filter(|late| *late <= LATEST)?;
        Some([until, rest, (now / 1_000) << 16 | late])
    }
}

/// The same denial by a bound that is so many µs later, where nothing is left anyway.
fn later(denied: Assessment, late: Tick) -> Assessment {
    let mut later = denied;
    later.reset_after = denied.reset_after.saturating_add(late);
    later.retry = match denied.retry {
        Retry::After(wait) => Retry::After(wait.saturating_add(Duration::from_micros(late))),
        other => other,
    };
    later
}

/// From empty to full, in µs, rounded down.
fn fill(quota: &Quota) -> Tick {
    let fill = u128::from(quota.limit()) * quota.period().as_micros();
    Tick::try_from(fill / u128::from(quota.rate().max(1))).unwrap_or(Tick::MAX)
}

/// What a bucket denies, by what is known of it.
///
/// Reports take more than there is. Until that has come back nothing fits, and then the bucket is empty.
fn assess(
    quota: &Gcra,
    fill: Tick,
    DenyBound(until, rest): DenyBound,
    now: Tick,
    cost: u64,
) -> Option<Assessment> {
    let overdraft = until.saturating_sub(now).saturating_sub(fill);
    if overdraft == 0 {
        return quota.deny_by(DenyBound(until, rest), now, cost);
    }
    let empty = quota.deny_by(DenyBound(until - overdraft, 0), now, cost)?;
    Some(later(empty, overdraft))
}

fn denial(remaining: u64, wait: Tick, never: bool) -> Assessment {
    let retry = match never {
        true => Retry::Never,
        false => Retry::after_micros(wait),
    };
    Assessment::new(false, remaining, wait, retry)
}

// What a process knows of a key that is blocked. A block is believed for a second, so that a reset is seen. While the store does not
// answer, it stands until its end. The store counts each denial that may begin one: no cache answers it.

/// What is known of a blocked key. Times are of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyBlock {
    learned_at: Tick,
    /// Until when it is blocked, and by its how manieth block.
    pub(crate) until: Tick,
    level: u8,
    /// Until when requests of this cost are denied under this limit, by its quota too.
    denied_until: Tick,
    cost: u64,
    limit: u32,
}

impl KeyBlock {
    /// The denial of a check by the block, if the store has said so of this cost under this limit within the last second.
    pub(crate) fn deny(&self, check: &Check, limit: u32, now: Tick) -> Option<Verdict> {
        let is_believed = now < self.learned_at.saturating_add(TRUST) && now >= self.learned_at;
        // A smaller cost fits at the end of the block, if this one does: else it may fit earlier than this one.
        let is_known = check.cost() == self.cost
            || check.cost() < self.cost && self.denied_until <= self.until;
        let until = self.denied_until.max(self.until);
        self.verdict(check, now, until)
            .filter(|_| is_known && is_believed && self.limit == limit)
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

    /// What the store said of `cost` units of a key under a limit, if it is blocked.
    pub(crate) fn new(now: Tick, cost: u64, limit: u32, verdict: &Verdict) -> Option<Self> {
        let mut block = Self {
            learned_at: now,
            until: now.saturating_add(verdict.reset_after_ticks()),
            level: verdict.block_level()?,
            denied_until: 0,
            cost: 0,
            limit,
        };
        if let Retry::After(wait) = verdict.retry() {
            (block.cost, block.denied_until) = (cost, now.saturating_add(micros(wait)));
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests;
