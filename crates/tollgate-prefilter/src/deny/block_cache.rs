//! What a process knows of keys that are counted towards blocks: which are blocked, and the denials by the deny cache that the
//! store has not counted yet.
//!
//! The deny cache answers for a second, so a client that does not stop costs a call a second. What it denies counts here, and the next
//! call for the key takes it along: when the second is over, or at once when what the store has counted and what is counted here
//! reach the block. So a client of one process is blocked at exactly that denial.
//!
//! A block is believed for a second too, so that a reset is seen. While the store does not answer, it stands until its end.

use std::{collections::HashMap, fmt};

use tollgate_core::{ActiveBlock, Retry, Tick, Verdict};

use crate::{
    deny::deny_cache::TRUST,
    sync::{Mutex, lock_briefly},
    table::table_key::TableKey,
};

const SHARDS: usize = 64;
/// The most keys of a shard: 65 536 keys take about 6 MiB.
const PER_SHARD: usize = 1 << 10;
/// How many entries are compared when one has to go.
const SAMPLE: usize = 8;

type BlockShard = HashMap<[u64; 3], KeyBlock>;

pub(crate) struct BlockCache {
    shards: Box<[Mutex<BlockShard>]>,
    per_shard: usize,
}

/// What is known of a key. Times are of this process.
#[derive(Clone, Copy, Debug, Default)]
struct KeyBlock {
    learned_at: Tick,
    /// Until when it is blocked, and by its how manieth block.
    until: Tick,
    level: u8,
    /// Until when requests of this cost are denied, by the quota too.
    denied_until: Tick,
    cost: u64,
    /// Denials that count towards the next block: those that the store has counted, and those since.
    stored: u32,
    local: u16,
}

impl BlockCache {
    /// The cache of a process with entries of up to `keys` keys: one for four of them.
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            per_shard: (keys / 4 / SHARDS).clamp(SAMPLE, PER_SHARD),
        }
    }

    fn with<R>(
        &self,
        slot: TableKey,
        act: impl FnOnce(&mut HashMap<[u64; 3], KeyBlock>, [u64; 3]) -> R,
    ) -> R {
        let [high, low] = slot.key;
        let shard = &self.shards[low as usize % SHARDS];
        act(&mut lock_briefly(shard), [high, low, slot.limit.into()])
    }

    /// The block of a key and when this cost passes, if the store has said so within the last second.
    pub(crate) fn deny(
        &self,
        slot: TableKey,
        now: Tick,
        cost: u64,
    ) -> Option<(ActiveBlock, Retry)> {
        let known = self.with(slot, |keys, key| keys.get(&key).copied())?;
        let is_believed = now < known.learned_at.saturating_add(TRUST) && now >= known.learned_at;
        let until = known.denied_until.max(known.until);
        let is_known = cost > 0 && cost <= known.cost && is_believed;
        let block = known.block(now).filter(|_| is_known)?;
        Some((block, Retry::after_micros(until - now)))
    }

    /// The block of a key, whenever the store has said so.
    pub(crate) fn known(&self, slot: TableKey, now: Tick) -> Option<ActiveBlock> {
        self.with(slot, |keys, key| keys.get(&key)?.block(now))
    }

    /// Whether this process may deny the next request of a key by itself: one more denial begins no block. If so, `counts` it.
    pub(crate) fn may_deny(&self, slot: TableKey, after: u32, counts: bool) -> bool {
        self.with(slot, |keys, key| {
            // Nothing is known of a key that had to go.
            let Some(known) = keys.get_mut(&key) else {
                return false;
            };
            let may = known.stored + u32::from(known.local) + 1 < after;
            known.local += u16::from(may && counts);
            may
        })
    }

    /// What a call takes along.
    pub(crate) fn take(&self, slot: TableKey) -> u16 {
        self.with(slot, |keys, key| {
            keys.get_mut(&key)
                .map_or(0, |it| std::mem::take(&mut it.local))
        })
    }

    /// The call was not sent.
    pub(crate) fn give_back(&self, slot: TableKey, counted: u16) {
        self.with(slot, |keys, key| {
            if let Some(known) = keys.get_mut(&key) {
                known.local = known.local.saturating_add(counted);
            }
        });
    }

    /// Learns from the verdict of the store on `cost` units, with how many count towards the next block.
    pub(crate) fn learn(
        &self,
        slot: TableKey,
        now: Tick,
        (cost, counted): (u64, u32),
        verdict: &Verdict,
    ) {
        let is_nothing = verdict.block_level().is_none() && counted == 0;
        self.with(slot, |keys, key| {
            if is_nothing && !keys.contains_key(&key) {
                return;
            }
            if keys.len() >= self.per_shard && !keys.contains_key(&key) {
                let first = keys.iter().take(SAMPLE).min_by_key(|(_, it)| it.until);
                let first = first.map(|(key, _)| *key);
                first.map(|key| keys.remove(&key));
            }
            let known = keys.entry(key).or_default();
            *known = KeyBlock {
                learned_at: now,
                stored: counted,
                local: known.local,
                ..KeyBlock::default()
            };
            if let Some(level) = verdict.block_level() {
                known.local = 0;
                known.level = level;
                known.until = now.saturating_add(verdict.reset_after_ticks());
                if let Retry::After(wait) = verdict.retry() {
                    let wait = Tick::try_from(wait.as_micros()).unwrap_or(Tick::MAX);
                    (known.cost, known.denied_until) = (cost, now.saturating_add(wait));
                }
            }
        });
    }

    /// Forgets a key whose state is forgotten.
    pub(crate) fn forget(&self, slot: TableKey) {
        self.with(slot, |keys, key| _ = keys.remove(&key));
    }

    /// The memory that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let room = |shard: &Mutex<HashMap<_, _>>| lock_briefly(shard).capacity();
        let entries: usize = self.shards.iter().map(room).sum();
        entries * (size_of::<([u64; 3], KeyBlock)>() + 1)
    }
}

impl KeyBlock {
    fn block(&self, now: Tick) -> Option<ActiveBlock> {
        let micros = self.until.checked_sub(now).filter(|micros| *micros > 0)?;
        Some(ActiveBlock {
            micros,
            level: self.level,
        })
    }
}

/// Without the keys.
impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").finish_non_exhaustive()
    }
}
