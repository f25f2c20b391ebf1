//! How long an owner of slots is known.

use tollgate_core::Tick;

/// How long the store knows an owner of slots that it does not hear from, and how exactly clocks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTerms {
    term: Tick,
    margin: Tick,
    patience: Tick,
}

impl SlotTerms {
    /// A term in µs. A hundredth of it is kept as a margin for clocks that do not run at the same rate.
    pub fn new(term: Tick) -> Self {
        Self::with_margin(term, term / 100)
    }

    /// The same with a margin in µs: by how much the clock of a process may fall behind that of the store within a term.
    pub fn with_margin(term: Tick, margin: Tick) -> Self {
        Self {
            term,
            margin,
            patience: term / 500,
        }
    }

    /// The same, for a store that answers within `deadline` µs, or never. An acquire that a renewal makes void is sent again: a
    /// store that is far would be asked in vain, again and again, if ends of requests were told before it can have answered.
    pub fn of_store(mut self, deadline: Tick) -> Self {
        self.patience = self.patience.max(deadline).min(self.retry_after());
        self
    }

    /// The term, in µs.
    pub fn term(&self) -> Tick {
        self.term
    }

    /// The pause between two renewals, in µs: a third of the term, so that one of them may be lost.
    pub fn renew_after(&self) -> Tick {
        self.term / 3
    }

    /// How long the end of a request may go untold, in µs, so that acquires in flight are not void: 30 ms of 15 s, or the deadline
    /// of the store, but at most half a second of 15 s.
    pub fn patience(&self) -> Tick {
        self.patience
    }

    /// The pause before a renewal whose reply was lost is sent again, in µs: half a second of 15 s.
    pub(crate) fn retry_after(&self) -> Tick {
        self.term / 30
    }

    /// Until when a request may start on a slot: counted from the time at which its message was **sent**. Counted from the reply, it
    /// would start on a slot that another process has by then.
    pub fn deadline(&self, sent: Tick, left: Tick) -> Tick {
        sent.saturating_add(left).saturating_sub(self.margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_are_parts_of_the_term() {
        let terms = SlotTerms::new(15_000_000);
        assert_eq!((terms.patience(), terms.retry_after()), (30_000, 500_000));
        assert_eq!((terms.term(), terms.renew_after()), (15_000_000, 5_000_000));
        let patience = |deadline| terms.of_store(deadline).patience();
        let patience = [10_000, 50_000, 2_000_000].map(patience);
        assert_eq!(patience, [30_000, 50_000, 500_000]);
    }

    #[test]
    fn no_request_starts_within_the_margin_of_the_end_of_its_slots() {
        let terms = SlotTerms::new(15_000_000);
        assert_eq!(terms.deadline(1_000_000, 15_000_000), 15_850_000);
        let wider = SlotTerms::with_margin(15_000_000, 1_000_000);
        assert_eq!(wider.deadline(1_000_000, 15_000_000), 15_000_000);
        assert_eq!(terms.deadline(0, 1), 0);
    }
}
