//! The sketches of two periods.

use std::{array, time::Duration};

use crate::{
    observe::sketch::{Sketch, copied},
    sync::{AtomicU64, Ordering, pause},
    time::Tick,
};

/// What a sketch covers before the next one begins. Two are kept.
pub(super) const PERIOD: Duration = Duration::from_secs(150);
const TICKS: u64 = PERIOD.as_micros() as u64;

/// Places for keys that want a label.
const WANTED: usize = 64;

/// The heaviest keys of this period and of the one before. As a [`Sketch`], they have one writer at a time, and others copy them.
pub(super) struct RecentKeys {
    /// When the period of the current sketch begins.
    begins: AtomicU64,
    /// Which sketch is the current one: 0 or 1.
    current: AtomicU64,
    /// Odd while another period begins.
    turn: AtomicU64,
    sketches: [Sketch; 2],
    /// Keys whose next check is to say how they are called; 0 is a free place.
    wanted: [AtomicU64; WANTED],
}

impl RecentKeys {
    #[cold]
    pub(super) fn boxed() -> Box<Self> {
        Box::new(Self {
            begins: AtomicU64::new(0),
            current: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            sketches: array::from_fn(|_| Sketch::new()),
            wanted: array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    /// Whether this time is in the period of the current sketch.
    #[inline]
    pub(super) fn is_now(&self, at: Tick) -> bool {
        at.wrapping_sub(self.begins.load(Ordering::Relaxed)) < TICKS
    }

    /// Whether this time is in the period before: of a decision that was made then, and is recorded after one of this period.
    pub(super) fn is_just_over(&self, at: Tick) -> bool {
        let before = self.begins.load(Ordering::Relaxed).checked_sub(at);
        before.is_some_and(|before| (1..=TICKS).contains(&before))
    }

    /// The sketch of this period, for its writer.
    #[inline]
    pub(super) fn current(&self) -> &Sketch {
        &self.sketches[self.current.load(Ordering::Relaxed) as usize % 2]
    }

    /// The sketch of the period before.
    pub(super) fn previous(&self) -> &Sketch {
        &self.sketches[(self.current.load(Ordering::Relaxed) as usize + 1) % 2]
    }

    /// The number of the period.
    pub(super) fn period(&self) -> u64 {
        self.begins.load(Ordering::Relaxed) / TICKS
    }

    /// Begins the period of this time. A clock that goes back begins anew.
    #[cold]
    pub(super) fn begin(&self, at: Tick) {
        let (period, turn) = (at / TICKS, self.turn.load(Ordering::Relaxed));
        self.turn.store(turn + 1, Ordering::Relaxed);
        if period != self.period() + 1 {
            self.current().clear();
        }
        self.previous().clear();
        let next = (self.current.load(Ordering::Relaxed) + 1) % 2;
        self.current.store(next, Ordering::Release);
        self.begins.store(period * TICKS, Ordering::Release);
        self.turn.store(turn + 2, Ordering::Release);
    }

    /// What is there now, while another thread writes. The keys that want a label stay where they are.
    pub(super) fn copied(&self) -> Box<Self> {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let copy = Box::new(Self {
                begins: copied(&self.begins),
                current: copied(&self.current),
                turn: AtomicU64::new(0),
                sketches: self.sketches.each_ref().map(Sketch::copied),
                wanted: array::from_fn(|_| AtomicU64::new(0)),
            });
            if turn.is_multiple_of(2) && self.turn.load(Ordering::Relaxed) == turn {
                return copy;
            }
            pause();
        }
    }

    /// Whether the next check of this key is to say how it is called. It is asked once.
    #[inline]
    pub(super) fn takes_wanted(&self, key: u64) -> bool {
        let wanted = &self.wanted[key as usize % WANTED];
        let is_wanted = wanted.load(Ordering::Relaxed) == key;
        if is_wanted {
            wanted.store(0, Ordering::Relaxed);
        }
        is_wanted
    }

    /// Asks for the label of a key.
    #[inline]
    pub(super) fn want(&self, key: u64) {
        self.wanted[key as usize % WANTED].store(key, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_keys_of_two_periods_and_of_no_third() {
        let recent = RecentKeys::boxed();
        let is_done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for period in 1..50_000_u64 {
                    recent.begin(period * TICKS);
                    // In many sets.
                    for key in 1..64 {
                        let key = period << 8 | key;
                        let _ = recent.current().find(key).record(1, false);
                    }
                }
                is_done.store(1, Ordering::Release);
            });
            while is_done.load(Ordering::Acquire) == 0 {
                let copy = recent.copied();
                for (sketch, period) in [
                    (copy.current(), copy.period()),
                    (copy.previous(), copy.period().saturating_sub(1)),
                ] {
                    let periods = sketch.entries().map(|entry| entry.key >> 8);
                    let other = periods.into_iter().find(|of_key| *of_key != period);
                    assert_eq!(other, None, "in {period}");
                }
            }
        });
    }
}
