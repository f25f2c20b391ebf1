//! What would be wrong: each fault is put between the model and the real states, and the model has to find it.

use tollgate_core::Tick;
use tollgate_prefilter::{Grant, LeaseHolder, LeaseQuery, ReturnedLease};
use tollgate_test_reference::{TrackedLeases, put_back};

use crate::{bucket::Bucket, system::Pending};

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What is on lease is not held back from the burst.
    NoCap,
    /// What comes back is put back before the burst is cut by what was on lease.
    CapAfterRelease,
    /// A lease lives from the answer on, not from the query.
    DeadlineFromAnswer,
    /// A lease is forgotten with the generation in which it was granted.
    OneLife,
    /// A process does not look at the deadline.
    SpentTooLate,
    /// What was returned with a query whose answer was lost is returned again.
    HandedBackAgain,
    /// A lease comes back that is not tracked any more.
    OldGeneration,
    /// When time goes back, leases are forgotten.
    StepBackForgets,
    /// When time goes back, leases are numbered anew at once, and are taken for later ones.
    StepBackRenumbers,
    /// Units go back into whatever lease there is.
    GivenToAnother,
    /// A reset forgets what is out.
    ResetForgets,
    /// A lease of a window lives for the length of a window.
    WindowOutlived,
    /// The units of a scheduled lease are due from the query on.
    PacedFromQuery,
    /// They are due at once.
    NotPaced,
    /// They come due before what was granted earlier has come back.
    NotQueued,
    /// A refusal forgives what is owed.
    Forgiven,
    /// Units come back only into the lease that they were spent of.
    LostWithLease,
    /// A lease that comes takes the place of units that came back meanwhile.
    LeaseReplacesUnits,
    /// Units that have no place in a process are not refunded.
    NotRefunded,
    /// They are refunded though they had one.
    RefundedTwice,
    /// They are refunded in the window of now.
    RefundedNow,
    /// What went with a query that was refused is taken for lost.
    RefusedIsLost,
    /// The reply to a query whose caller has gone is not processed.
    DroppedUnheard,
    /// What is left of the window before does not go back.
    BeforeStays,
    /// It does not where a lease of another window takes its place.
    BeforeIsReplaced,
}

impl Fault {
    /// What is done to the store before a query is carried out.
    pub(crate) fn before(
        fault: Option<Self>,
        bucket: &mut Bucket,
        clock: Tick,
        query: &LeaseQuery,
    ) -> LeaseQuery {
        let mut query = *query;
        let generation = clock / bucket.fixed.terms.tracked_life;
        let Bucket { fixed, state, .. } = bucket;
        let (quota, grantor) = (&fixed.quota, &fixed.grantor);
        match fault {
            Some(Self::CapAfterRelease) => {
                if let Some(grant) = query.returned.take()
                    && let Some(tracked) = tracked(&mut state.leases, grant)
                {
                    *tracked -= grant.size;
                    put_back(quota, &mut state.arrival, clock, grant.left);
                }
            }
            Some(Self::OneLife) => {
                grantor.settle(state, clock);
                state.leases.previous = 0;
            }
            Some(Self::OldGeneration) => {
                grantor.settle(state, clock);
                if let Some(grant) = query.returned
                    && tracked(&mut state.leases, grant).is_none()
                {
                    put_back(quota, &mut state.arrival, clock, grant.left);
                }
            }
            Some(Self::Forgiven) => state.owed = 0,
            Some(Self::StepBackForgets) if state.leases.generation > generation => {
                state.leases = TrackedLeases::default();
            }
            Some(Self::StepBackRenumbers) if state.leases.generation > generation => {
                let total = state.leases.total();
                state.leases = TrackedLeases::default();
                (state.leases.generation, state.leases.current) = (generation, total);
            }
            _ => {}
        }
        query
    }

    /// What is done to it afterwards.
    pub(crate) fn after(fault: Option<Self>, bucket: &mut Bucket) {
        if fault == Some(Self::NoCap) {
            bucket.state.leases = TrackedLeases::default();
        }
    }

    /// What a process takes a lease for, and when it believes to have received it.
    pub(crate) fn received(
        fault: Option<Self>,
        (sent, now): (Tick, Tick),
        grant: Option<Grant>,
    ) -> (Tick, Option<Grant>) {
        match (fault, grant) {
            (Some(Self::PacedFromQuery), _) => (sent, grant),
            (Some(Self::NotPaced), Some(Grant::Scheduled { units, .. })) => (
                now,
                Some(Grant::Tracked {
                    units,
                    generation: 0,
                }),
            ),
            (Some(Self::NotQueued), Some(Grant::Scheduled { units, .. })) => {
                (now, Some(Grant::Scheduled { units, after: 0 }))
            }
            _ => (now, grant),
        }
    }

    /// How a process spends.
    pub(crate) fn spend(
        fault: Option<Self>,
        holder: &mut LeaseHolder,
        now: Tick,
        cost: u64,
    ) -> bool {
        match (fault, holder.until()) {
            (Some(Self::SpentTooLate), Some(until)) => holder.spend(until - 1, cost),
            _ => holder.spend(now, cost),
        }
    }

    /// How a process gives back a unit. Gives the units that the store has to refund, and in what window.
    pub(crate) fn give_back(
        fault: Option<Self>,
        holder: &mut LeaseHolder,
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
            Some(Self::LostWithLease) if holder.until() != pending.until => return None,
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

fn tracked(leases: &mut TrackedLeases, grant: ReturnedLease) -> Option<&mut u64> {
    let tracked = match leases.generation.checked_sub(grant.generation)? {
        0 => &mut leases.current,
        1 => &mut leases.previous,
        _ => return None,
    };
    (*tracked >= grant.size).then_some(tracked)
}
