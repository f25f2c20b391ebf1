//! A shard: entries behind one lock, within a bound in bytes.

use crate::{
    algorithm::Algorithm,
    key::Fingerprint,
    memory::slots::{Entry, Slots},
    time::Tick,
};

/// How many slots are looked at for states to forget when a key is new.
const SWEEP: usize = 4;
/// How many live entries are compared when one has to go.
const SAMPLE: usize = 8;
/// The fewest slots.
const LEAST: usize = 8;

/// The entries of one shard.
#[derive(Debug)]
pub(super) struct Shard<A: Algorithm> {
    entries: Slots<A::State>,
    /// Bytes that states hold on the heap.
    heap: usize,
    /// The most bytes that entries and heap may take.
    budget: usize,
    /// Where the next look for states to forget begins.
    cursor: usize,
    pub(super) evicted_live: u64,
}

/// Tells the state of an entry: the tick at which it is fresh.
pub(super) type FreshAt<'a, A> = &'a dyn Fn(&Entry<<A as Algorithm>::State>) -> Tick;

impl<A: Algorithm> Shard<A> {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            entries: Slots::default(),
            heap: 0,
            budget,
            cursor: 0,
            evicted_live: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.used()
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.bytes() + self.heap
    }

    /// All entries; none is left.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Entry<A::State>> {
        self.heap = 0;
        self.entries.drain()
    }

    #[inline]
    pub(super) fn find(&self, key: Fingerprint) -> Option<&Entry<A::State>> {
        self.entries.get(self.entries.find(key)?)
    }

    /// The entry of `key` for a change that leaves its heap as it is.
    #[inline(always)]
    pub(super) fn find_mut(&mut self, key: Fingerprint) -> Option<&mut Entry<A::State>> {
        self.entries.get_mut(self.entries.find(key)?)
    }

    /// The entry of `key` and its slot, for a change that may be put back under the same lock.
    #[inline(always)]
    pub(super) fn find_slot(&mut self, key: Fingerprint) -> Option<(usize, &mut Entry<A::State>)> {
        let slot = self.entries.find(key)?;
        Some((slot, self.entries.get_mut(slot)?))
    }

    pub(super) fn put_back(&mut self, slot: usize, state: A::State) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.state = state;
        }
    }

    /// Changes the entry of `key`, and keeps to the bound.
    pub(super) fn update(
        &mut self,
        key: Fingerprint,
        now: Tick,
        fresh_at: FreshAt<'_, A>,
        change: impl FnOnce(&mut Entry<A::State>),
    ) {
        let Some(entry) = self.find_mut(key) else {
            return;
        };
        let before = A::heap_bytes(&entry.state);
        change(entry);
        let after = A::heap_bytes(&entry.state);
        if after != before {
            self.heap = self.heap + after - before;
            self.keep_to_bound(key, now, fresh_at);
        }
    }

    /// Adds the entry of a key that has none.
    pub(super) fn insert(
        &mut self,
        key: Fingerprint,
        entry: Entry<A::State>,
        now: Tick,
        fresh_at: FreshAt<'_, A>,
    ) {
        self.sweep(now, fresh_at);
        while self.entries.is_full() {
            match self.larger() {
                Some(len) => self.entries.resize(len),
                None => self.evict(None, now, fresh_at),
            }
        }
        self.heap += A::heap_bytes(&entry.state);
        self.entries.insert(entry);
        self.keep_to_bound(key, now, fresh_at);
    }

    pub(super) fn remove(&mut self, key: Fingerprint) {
        if let Some(slot) = self.entries.find(key) {
            self.remove_at(slot);
        }
    }

    /// The next larger number of slots within the bound.
    fn larger(&self) -> Option<usize> {
        let slots = self.entries.len();
        let most = self.budget.saturating_sub(self.heap) / size_of::<Entry<A::State>>();
        let larger = (slots + slots.div_ceil(2)).min(most).max(LEAST);
        // A step too small to be worth the move is left alone.
        (larger > slots + slots / 16).then_some(larger)
    }

    #[inline]
    fn keep_to_bound(&mut self, keep: Fingerprint, now: Tick, fresh_at: FreshAt<'_, A>) {
        while self.heap > 0 && self.bytes() > self.budget && self.entries.used() > 1 {
            self.evict(Some(keep), now, fresh_at);
        }
    }

    /// Looks at the next few slots, and forgets what is fresh.
    fn sweep(&mut self, now: Tick, fresh_at: FreshAt<'_, A>) {
        let slots = self.entries.len();
        for _ in 0..SWEEP.min(slots) {
            self.advance();
            // What moves back into the slot is looked at as well, or it would escape each time.
            while let Some(entry) = self.entries.get(self.cursor)
                && fresh_at(entry) <= now
            {
                self.remove_at(self.cursor);
            }
        }
        // After a flood has gone, give its memory back; far from where it would grow again.
        if self.cursor < SWEEP && slots > 64 && self.entries.used() < slots / 8 {
            self.entries.resize(slots / 4);
        }
    }

    fn advance(&mut self) {
        self.cursor = if self.cursor + 1 >= self.entries.len() {
            0
        } else {
            self.cursor + 1
        };
    }

    fn remove_at(&mut self, slot: usize) {
        if let Some(entry) = self.entries.remove(slot) {
            self.heap -= A::heap_bytes(&entry.state);
        }
    }

    /// Forgets one entry: the one nearest to fresh of a sample, never `keep`.
    fn evict(&mut self, keep: Option<Fingerprint>, now: Tick, fresh_at: FreshAt<'_, A>) {
        let mut nearest: Option<((Tick, u64), usize)> = None;
        let mut seen = 0;
        for _ in 0..self.entries.len() {
            self.advance();
            let Some(entry) = self.entries.get(self.cursor) else {
                continue;
            };
            if keep.is_some_and(|key| entry.is(key)) {
                continue;
            }
            let fresh = fresh_at(entry);
            // Windows end together: of keys that are equally near to fresh, the one that has used the least goes.
            let order = (fresh, A::weight(&entry.state));
            if nearest.is_none_or(|(least, _)| order < least) {
                nearest = Some((order, self.cursor));
            }
            seen += 1;
            if seen == SAMPLE || fresh <= now {
                break;
            }
        }
        if let Some(((fresh, _), slot)) = nearest {
            self.evicted_live += u64::from(fresh > now);
            self.remove_at(slot);
        }
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;
    use crate::{
        algorithm::{Arrival, FixedWindow, SlidingLog},
        quota::Quota,
        time::{MINUTE, SECOND},
    };

    fn key(n: u64) -> Fingerprint {
        // Spread as a hash would.
        let low = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Fingerprint::from_bits(u128::from(low) | u128::from(low.rotate_left(17)) << 64)
    }

    #[test]
    fn an_entry_of_a_bucket_or_window_has_32_bytes() {
        assert_eq!(size_of::<Entry<<Arrival as Algorithm>::State>>(), 32);
        assert_eq!(
            size_of::<Entry<<crate::algorithm::SlidingWindow as Algorithm>::State>>(),
            32
        );
        assert_eq!(size_of::<Entry<<SlidingLog as Algorithm>::State>>(), 24);
    }

    #[test]
    fn over_the_bound_the_entry_nearest_to_fresh_goes() {
        let quota = Arrival::new(&Quota::gcra(10, SECOND).burst(100)).expect("valid");
        let fresh_at = |entry: &Entry<_>| quota.fresh_at(&entry.state);
        let mut shard = Shard::<Arrival>::new(4_096);
        let add = |shard: &mut Shard<Arrival>, n: u64, cost: u64| {
            let mut state = Default::default();
            quota.take(&mut state, 1_000_000, cost);
            shard.insert(key(n), Entry::new(key(n), 0, state), 1_000_000, &fresh_at);
        };
        add(&mut shard, 0, 90);
        for n in 1..10_000 {
            add(&mut shard, n, 1);
            assert!(shard.bytes() <= 4_096, "{}", shard.bytes());
        }
        assert!(
            shard.find(key(0)).is_some(),
            "the key in use keeps its state"
        );
        assert!(shard.evicted_live > 9_000);
    }

    #[test]
    fn of_keys_in_one_window_the_one_that_has_used_the_least_goes() {
        let quota = FixedWindow::new(&Quota::fixed_window(100, MINUTE)).expect("valid");
        let fresh_at = |entry: &Entry<_>| quota.fresh_at(&entry.state);
        let mut shard = Shard::<FixedWindow>::new(4_096);
        for n in 0..10_000 {
            let mut state = Default::default();
            quota.take(&mut state, 1_000_000, if n == 0 { 90 } else { 1 });
            shard.insert(key(n), Entry::new(key(n), 0, state), 1_000_000, &fresh_at);
        }
        assert!(
            shard.find(key(0)).is_some(),
            "the key in use keeps its state"
        );
    }

    #[test]
    fn fresh_states_are_forgotten_while_new_keys_come() {
        let quota = Arrival::new(&Quota::gcra(10, SECOND)).expect("valid");
        let fresh_at = |entry: &Entry<_>| quota.fresh_at(&entry.state);
        let mut shard = Shard::<Arrival>::new(1 << 20);
        for n in 0..100_000_u64 {
            let now = n * 1_000;
            let mut state = Default::default();
            quota.take(&mut state, now, 1);
            shard.insert(key(n), Entry::new(key(n), 0, state), now, &fresh_at);
        }
        // A hundred live at a time; what is fresh goes within a revolution of the sweep.
        assert!(shard.len() < 1_000, "{}", shard.len());
        assert_eq!(shard.evicted_live, 0);
    }

    #[test]
    fn states_on_the_heap_count_against_the_bound() {
        let quota = SlidingLog::new(&Quota::sliding_log(1_000, MINUTE)).expect("valid");
        let fresh_at = |entry: &Entry<_>| quota.fresh_at(&entry.state);
        let mut shard = Shard::<SlidingLog>::new(64 << 10);
        for n in 0..20 {
            shard.insert(
                key(n),
                Entry::new(key(n), 0, Default::default()),
                0,
                &fresh_at,
            );
            for now in 0..400 {
                shard.update(key(n), now, &fresh_at, |entry| {
                    quota.take(&mut entry.state, now, 1);
                });
                assert!(shard.bytes() <= 64 << 10, "{}", shard.bytes());
            }
        }
        let counted: usize = (0..shard.entries.len())
            .filter_map(|slot| shard.entries.get(slot))
            .map(|entry| SlidingLog::heap_bytes(&entry.state))
            .sum();
        assert_eq!(counted, shard.heap);
    }
}
