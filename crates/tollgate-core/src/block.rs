//! Growing blocks: a key that does not stop is denied for a time, the next time for longer.
//!
//! [`Block`] is the setting of a rule, [`BlockState`] what a store keeps of a key, and the methods of the first on the second
//! are pure: a store tells the time and makes the step atomic. `blocks.lua` of tollgate-redis is the same in Lua.

use std::time::Duration;

use crate::{
    algorithm::{Assessment, Retry},
    quota::validate_time,
    time::{DAY, MINUTE, Tick, micros},
};

/// When a rule [blocks](crate::Rule::block) a key, and for how long.
///
/// The [`after`](Self::after)-th denial [`within`](Self::within) a time blocks the key for the first of the [times](Self::for_each);
/// a block begins a new count. The next one is for the second time, and so on; the last time is for all that follow. The level falls
/// to none [`forget_after`](Self::forget_after) the end of the last block.
///
/// While a key is blocked, each request is denied with [`Reason::Blocked`](crate::Reason::Blocked) and the time until its end. These
/// denials count nothing, so an innocent client behind the same address is refused until the end and no longer.
///
/// # What counts
///
/// Each request that the rule itself denies for want of units. Requests of a cost above the limit, peeks, a cost of 0, store failures
/// and full queues do not count, nor does what another rule alone denies.
///
/// Where units come back by a ticket, denials are no sign of abuse: requests under way cause them. There
/// [`count_settled`](Self::count_settled) counts the requests whose units stay taken instead. A layer does so for rules with
/// `count_if` by itself.
///
/// ```
/// use tollgate_core::{Block, DAY, HOUR, Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Reason, Rule};
///
/// let block = Block::after(3).within(10 * MINUTE).for_each([MINUTE, 10 * MINUTE, HOUR]).forget_after(DAY);
/// let rule = Rule::new("codes", Quota::sliding_log(5, MINUTE)).block(block);
/// let clock = ManualClock::new(1_700_000_000_000_000);
/// let limiter = Limiter::new(MemoryStore::builder().clock(&clock).build(), [rule])?;
/// let mallory = Key::of("mallory");
/// for n in 1..=9 {
///     let decision = limiter.try_acquire("codes", &mallory)?;
///     // Five pass, two are denied for the limit, and the third denial begins the block.
///     assert_eq!(decision.reason() == Some(Reason::Blocked), n >= 8);
/// }
/// clock.advance(MINUTE);
/// assert!(limiter.try_acquire("codes", &mallory)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "Ban")]
#[must_use = "give it to `Rule::block`"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    after: u32,
    within: Duration,
    times: Box<[Duration]>,
    forget_after: Duration,
    counts_settled: bool,
}

/// The most that a block counts to: an instant is kept of each.
const MOST: u32 = 1_000;
/// The most times that blocks grow through.
const MOST_TIMES: usize = 32;

impl Block {
    /// A block after this many denials, from 1 to 1 000. Default: within ten minutes, for a minute, then ten, then an hour, forgotten
    /// after a day.
    pub fn after(denials: u32) -> Self {
        Self {
            after: denials,
            within: 10 * MINUTE,
            times: [MINUTE, 10 * MINUTE, 60 * MINUTE].into(),
            forget_after: DAY,
            counts_settled: false,
        }
    }

    /// Within which time they count together.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// How long the first block is, the second, and so on: at most 32 times, none shorter than the one before. The last is that of all
    /// further blocks; one time alone is a block that does not grow.
    pub fn for_each(mut self, times: impl IntoIterator<Item = Duration>) -> Self {
        self.times = times.into_iter().collect();
        self
    }

    /// How long after the end of a block the next one is the first again.
    pub fn forget_after(mut self, time: Duration) -> Self {
        self.forget_after = time;
        self
    }

    /// Counts requests whose units stay taken, when their [ticket](crate::Ticket) is settled or dropped, instead of denials. A request
    /// whose units all come back does not count, and one without a ticket neither.
    pub fn count_settled(mut self) -> Self {
        self.counts_settled = true;
        self
    }

    /// How many begin a block.
    #[must_use]
    pub fn denials(&self) -> u32 {
        self.after
    }

    /// Within which time.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.within
    }

    /// How long blocks are.
    #[must_use]
    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// After which time the level is forgotten.
    #[must_use]
    pub fn forgotten_after(&self) -> Duration {
        self.forget_after
    }

    /// Whether [settled requests](Self::count_settled) count, and not denials.
    #[must_use]
    pub fn counts_settled(&self) -> bool {
        self.counts_settled
    }

    /// What is wrong with the numbers, and what would be right.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if !(1..=MOST).contains(&self.after) {
            return Err(format!(
                "a block after {} denials is not between 1 and {MOST}; Block::after(5) is usual",
                self.after
            ));
        }
        if self.times.is_empty() {
            return Err(
                "a block for no time would block nobody; say how long the first one is, and the next ones: \
                 for_each([MINUTE, 10 * MINUTE, HOUR])"
                    .into(),
            );
        }
        if self.times.len() > MOST_TIMES {
            return Err(format!(
                "{} times are above {MOST_TIMES}; the last one is that of all further blocks",
                self.times.len()
            ));
        }
        validate_time("a block that counts within", self.within, "")?;
        validate_time("a block that is forgotten after", self.forget_after, "")?;
        for time in &self.times {
            validate_time("a block for", *time, "")?;
        }
        match self.times.windows(2).find(|pair| pair[1] < pair[0]) {
            Some(pair) => Err(format!(
                "a block for {:?} after one for {:?} would reward who goes on; give times that grow, such as \
                 [MINUTE, 10 * MINUTE, HOUR]",
                pair[1], pair[0]
            )),
            None => Ok(()),
        }
    }

    /// How long a block of this level is, in µs.
    #[must_use]
    pub fn time_of(&self, level: u8) -> u64 {
        let index = usize::from(level).clamp(1, self.times.len().max(1)) - 1;
        self.times.get(index).map_or(0, |time| micros(*time))
    }

    /// The block of a key, if it is blocked. One that ends later than it can, because a clock was set back or its time is
    /// shorter now, ends as if it began now, once it is [repaired](Self::repair).
    #[must_use]
    pub fn block_of(&self, state: &BlockState, now: Tick) -> Option<ActiveBlock> {
        let left = state.until.checked_sub(now).filter(|left| *left > 0)?;
        Some(ActiveBlock {
            micros: left.min(self.time_of(state.level)),
            level: state.level,
        })
    }

    /// Lets a block that ends later than it can end as if it began now. A request does, and a peek does not.
    pub fn repair(&self, state: &mut BlockState, now: Tick) {
        let latest = now.saturating_add(self.time_of(state.level));
        if state.until > latest {
            state.until = latest;
            state.forgotten_at = latest.saturating_add(micros(self.forget_after));
        }
    }

    /// Counts `count` denials or settled requests of a key that is not blocked. The answer is the block that begins with them.
    pub fn count(&self, state: &mut BlockState, now: Tick, count: u32) -> Option<ActiveBlock> {
        let (within, forget) = (micros(self.within), micros(self.forget_after));
        if state.forgotten_at <= now {
            *state = BlockState::default();
        }
        if state.until.saturating_add(forget) <= now {
            (state.until, state.level) = (0, 0);
        }
        state
            .counted
            .retain(|at| (*at).min(now).saturating_add(within) > now);
        for at in &mut state.counted {
            *at = (*at).min(now);
        }
        if (state.counted.len() as u64) + u64::from(count) >= u64::from(self.after) {
            state.counted = Vec::new();
            state.level = state.level.saturating_add(1).min(self.times.len() as u8);
            let micros = self.time_of(state.level);
            state.until = now.saturating_add(micros);
            state.forgotten_at = state.until.saturating_add(forget);
            let level = state.level;
            return Some(ActiveBlock { micros, level });
        }
        let more = (0..count).map(|_| now);
        state.counted.extend(more);
        state.forgotten_at = match state.level {
            0 => now.saturating_add(within),
            _ => now
                .saturating_add(within)
                .max(state.until.saturating_add(forget)),
        };
        None
    }
}

/// What is kept of a key that was counted towards a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockState {
    /// The end of the last block; 0: there was none, or it is forgotten.
    pub(crate) until: Tick,
    /// From when on it equals a fresh one.
    pub(crate) forgotten_at: Tick,
    /// When what counts was counted since the last block began.
    pub(crate) counted: Vec<Tick>,
    level: u8,
}

/// A block in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveBlock {
    /// Until its end, in µs.
    pub micros: u64,
    /// The how manieth it is, from 1 up to the number of times that blocks have.
    pub level: u8,
}

impl ActiveBlock {
    /// The answer to a check of a blocked key, of what its quota says: denied until both let it pass. A cost of 0, which takes
    /// nothing, learns what is left: nothing. What was used is not told; the reset time is the end of the block.
    #[must_use]
    pub fn deny(self, answer: Assessment, cost: u64) -> Assessment {
        let end = Retry::after_micros(self.micros);
        Assessment {
            fits: cost == 0,
            remaining: 0,
            reset_after: self.micros,
            retry: match answer.fits && answer.retry != Retry::Never && cost > 0 {
                true => end,
                false => answer.retry.or_later(end),
            },
        }
    }
}
