//! Idempotency keys: a request that comes again with its id costs the rule nothing.
//!
//! [`Idempotency`] is the setting of a rule, [`SeenIds`] what a store keeps of a key, and the methods of the first on the second are
//! pure, as those of a block are. `ids.lua` of tollgate-redis is the same in Lua.

use std::{num::NonZeroU64, time::Duration};

use crate::{
    quota::validate_time,
    time::{Tick, micros},
};

/// The most ids of a key. A further one takes the place of the oldest.
const MOST: usize = 64;

/// For how long an id is known, and how many requests may repeat the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Idempotency {
    pub(crate) period: Duration,
    pub(crate) free_repeats: u8,
}

/// The ids that are kept of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenIds {
    /// The oldest first.
    ids: Vec<SeenId>,
    /// When the last one ends.
    pub(crate) ends_at: Tick,
}

#[derive(Clone, Copy, Debug)]
struct SeenId {
    id: NonZeroU64,
    /// When the first request with it was admitted.
    at: Tick,
    /// How many have repeated it at no cost.
    repeats: u8,
}

impl Idempotency {
    /// What is wrong with the numbers, and what would be right.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let remedy = "; take as long as clients retry, such as 10 * MINUTE";
        validate_time("a period of ids of", self.period, remedy)?;
        match self.free_repeats {
            0 => Err("with 0 free repeats each repeat would count; take at least 1, or leave idempotent() out".into()),
            _ => Ok(()),
        }
    }

    /// Whether a request with this id is a repeat that costs nothing.
    pub(crate) fn is_free(&self, seen: &SeenIds, id: NonZeroU64, now: Tick) -> bool {
        let known = seen.ids.iter().find(|seen| seen.id == id);
        let is_free = |seen: &SeenId| self.is_known(seen, now) && seen.repeats < self.free_repeats;
        seen.ends_at > now && known.is_some_and(is_free)
    }

    /// A request with this id is admitted: it was the first one, a repeat, or one repeat too many.
    pub(crate) fn admit(&self, seen: &mut SeenIds, id: NonZeroU64, now: Tick) {
        seen.forget_ended(now);
        let ended = seen
            .ids
            .iter()
            .take_while(|it| !self.is_known(it, now))
            .count();
        seen.ids.drain(..ended);
        match seen.ids.iter().position(|seen| seen.id == id) {
            Some(index) if self.is_known(&seen.ids[index], now) => {
                let known = &mut seen.ids[index];
                known.repeats = known.repeats.saturating_add(1).min(self.free_repeats);
                return;
            }
            // After a clock was set back, an id may have ended between two that have not.
            Some(index) => drop(seen.ids.remove(index)),
            None if seen.ids.len() == MOST => drop(seen.ids.remove(0)),
            None => {}
        }
        let (at, repeats) = (now, 0);
        seen.ids.push(SeenId { id, at, repeats });
        seen.ends_at = seen.ends_at.max(self.ends(now));
    }

    /// The request that was admitted with this id at `at` gets all of its units back: its id is forgotten. False: a repeat was let
    /// through meanwhile, or may have been, and the units stay taken for that.
    pub(crate) fn forget(&self, seen: &mut SeenIds, id: NonZeroU64, at: Tick, now: Tick) -> bool {
        if self.ends(at) <= now {
            // Nothing is known of its repeats any more.
            return false;
        }
        seen.forget_ended(now);
        // A later one is of another request.
        let is_it = |seen: &SeenId| seen.id == id && seen.at <= at && self.is_known(seen, now);
        match seen.ids.iter().position(is_it) {
            Some(index) if seen.ids[index].repeats > 0 => return false,
            Some(index) => drop(seen.ids.remove(index)),
            // It had to go for others.
            None => {}
        }
        true
    }

    fn ends(&self, at: Tick) -> Tick {
        at.saturating_add(micros(self.period))
    }

    fn is_known(&self, seen: &SeenId, now: Tick) -> bool {
        self.ends(seen.at) > now
    }
}

impl SeenIds {
    /// All of them, by the rules that have added them: their period may be another now.
    fn forget_ended(&mut self, now: Tick) {
        if self.ends_at <= now {
            *self = Self::default();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.ids.capacity() * size_of::<SeenId>()
    }
}
