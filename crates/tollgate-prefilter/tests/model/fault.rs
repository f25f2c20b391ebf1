//! What would be wrong: each fault is put between the model and the real states, and the model has to find it.

use tollgate_core::Tick;
use tollgate_prefilter::{Ask, Closed, Holder, Loans, Lot};

use crate::{bucket::Bucket, system::Pending};

/// A rule that somebody forgot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What is parked is not held back from the burst.
    NoCap,
    /// What comes back is put back before the burst is cut by what was parked.
    CapAfterRelease,
    /// A lot lives from the answer on, not from the question.
    DeadlineFromAnswer,
    /// A lot is forgotten with the generation in which it was lent.
    OneLife,
    /// A process does not look at the deadline.
    SpentTooLate,
    /// What was handed back with a question whose answer was lost is handed back again.
    HandedBackAgain,
    /// A lot comes back that is not tracked any more.
    OldGeneration,
    /// When time goes back, lots are forgotten.
    StepBackForgets,
    /// When time goes back, lots are numbered anew at once, and are taken for later ones.
    StepBackRenumbers,
    /// Units go back into whatever lot there is.
    GivenToAnother,
    /// A reset forgets what is out.
    ResetForgets,
    /// A lot of a window lives for the length of a window.
    WindowOutlived,
    /// The units of a segment are due from the question on.
    PacedFromQuestion,
    /// They are due at once.
    NotPaced,
    /// They come due before what was lent earlier has come back.
    NotInLine,
    /// A refusal forgives what is owed.
    Forgiven,
    /// Units come back only into the lot that they were spent of.
    LostWithLot,
    /// A lot that comes takes the place of units that came back meanwhile.
    LotReplacesUnits,
    /// Units that have no place in a process are not refunded.
    NotRefunded,
    /// They are refunded though they had one.
    RefundedTwice,
    /// They are refunded in the window of now.
    RefundedNow,
    /// What went with a question that was refused is taken for lost.
    RefusedIsLost,
    /// Nobody hears the answer to a question whose caller has gone.
    DroppedUnheard,
    /// What is left of the window before does not go back.
    BeforeStays,
    /// It does not where a lot of another window takes its place.
    BeforeIsReplaced,
}

impl Fault {
    /// What is done to the store before a question is carried out.
    pub(crate) fn before(fault: Option<Self>, bucket: &mut Bucket, clock: Tick, ask: &Ask) -> Ask {
        let mut ask = *ask;
        let generation = clock / bucket.terms.parking_life();
        let Bucket {
            quota,
            lender,
            state,
            ..
        } = bucket;
        match fault {
            Some(Self::CapAfterRelease) => {
                if let Some(lot) = ask.closed.take()
                    && let Some(tracked) = tracked(&mut state.loans, lot)
                {
                    *tracked -= lot.size;
                    quota.put_back(&mut state.arrival, clock, lot.left);
                }
            }
            Some(Self::OneLife) => {
                lender.settle(state, clock);
                state.loans.previous = 0;
            }
            Some(Self::OldGeneration) => {
                lender.settle(state, clock);
                if let Some(lot) = ask.closed
                    && tracked(&mut state.loans, lot).is_none()
                {
                    quota.put_back(&mut state.arrival, clock, lot.left);
                }
            }
            Some(Self::Forgiven) => state.owed = 0,
            Some(Self::StepBackForgets) if state.loans.generation > generation => {
                state.loans = Loans::default();
            }
            Some(Self::StepBackRenumbers) if state.loans.generation > generation => {
                state.loans = Loans {
                    generation,
                    current: state.loans.total(),
                    previous: 0,
                };
            }
            _ => {}
        }
        ask
    }

    /// What is done to it afterwards.
    pub(crate) fn after(fault: Option<Self>, bucket: &mut Bucket) {
        if fault == Some(Self::NoCap) {
            bucket.state.loans = Loans::default();
        }
    }

    /// What a process takes a lot for, and when it believes to have heard of it.
    pub(crate) fn heard(
        fault: Option<Self>,
        (sent, now): (Tick, Tick),
        lot: Option<Lot>,
    ) -> (Tick, Option<Lot>) {
        match (fault, lot) {
            (Some(Self::PacedFromQuestion), _) => (sent, lot),
            (Some(Self::NotPaced), Some(Lot::Segment { units, .. })) => {
                let generation = 0;
                (now, Some(Lot::Parking { units, generation }))
            }
            (Some(Self::NotInLine), Some(Lot::Segment { units, .. })) => {
                (now, Some(Lot::Segment { units, after: 0 }))
            }
            _ => (now, lot),
        }
    }

    /// How a process spends.
    pub(crate) fn spend(fault: Option<Self>, holder: &mut Holder, now: Tick, cost: u64) -> bool {
        match (fault, holder.until()) {
            (Some(Self::SpentTooLate), Some(until)) => holder.spend(until - 1, cost),
            _ => holder.spend(now, cost),
        }
    }

    /// How a process gives back a unit. Gives the units that the store has to refund, and in what window.
    pub(crate) fn give_back(
        fault: Option<Self>,
        holder: &mut Holder,
        pending: Pending,
        now: Tick,
    ) -> Option<u64> {
        let Some(mut window) = pending.window else {
            let spent = match fault {
                Some(Self::GivenToAnother) => Tick::MAX,
                _ => pending.spent,
            };
            holder.give_back(now, spent, 1);
            return None;
        };
        match fault {
            Some(Self::GivenToAnother) => window = holder.window().unwrap_or(window),
            Some(Self::LostWithLot) if holder.until() != pending.until => return None,
            _ => {}
        }
        let times = (now, pending.spent);
        // What is of another binding is not given to this one.
        let rest = match pending.is_of_another {
            true => 1,
            false => holder.give_back_to(window, times, 1),
        };
        match fault {
            Some(Self::NotRefunded) => None,
            Some(Self::RefundedTwice) => Some(window),
            _ => (rest > 0).then_some(window),
        }
    }
}

fn tracked(loans: &mut Loans, lot: Closed) -> Option<&mut u64> {
    let tracked = match loans.generation.checked_sub(lot.generation)? {
        0 => &mut loans.current,
        1 => &mut loans.previous,
        _ => return None,
    };
    (*tracked >= lot.size).then_some(tracked)
}
