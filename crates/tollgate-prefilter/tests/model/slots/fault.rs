//! What would be wrong: each fault is put between the model and the real states, and the model has to find it.

use tollgate_core::Tick;
use tollgate_prefilter::{SlotMessage, SlotOwner, SlotReply, SlotTerms};
use tollgate_test_reference::{SlotGrantor, SlotState};

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The store counts slots, but not whose they are.
    NoOwner,
    /// A process has the same id after a restart.
    OwnerOverRestarts,
    /// Acquires have no numbers.
    AcquiresNotNumbered,
    /// Releases and renewals have none.
    RenewalsNotNumbered,
    /// An acquire adds to what is counted, a release subtracts.
    RelativeCounts,
    /// The requests that run are counted before the number is drawn.
    CountedBefore,
    /// The store forgets one owner that has expired in each call.
    OneExpires,
    /// Each message extends the term.
    AlwaysExtends,
    /// A record without slots is deleted.
    DeletedAtZero,
    /// A grant is used though a renewal was sent since.
    VoidStarts,
    /// A grant is good for its time from the reply on.
    DeadlineFromReply,
    /// No margin for clocks that run apart.
    NoMargin,
    /// The store goes by the clock of the process.
    LocalClock,
    /// A process forgets the key when no request runs, whether the store has said so or not.
    LeavesEarly,
    /// Requests that have outlived their term are not counted again.
    NeverRevived,
    /// The end of a request counts twice.
    DoubleRelease,
}

impl Fault {
    /// Who sends a message.
    pub(super) fn owner(fault: Option<Self>, owner: SlotOwner) -> SlotOwner {
        match fault {
            Some(Self::NoOwner) => SlotOwner(1),
            _ => owner,
        }
    }

    /// The store processes a message.
    pub(super) fn execute(
        fault: Option<Self>,
        grantor: &SlotGrantor,
        store: &mut SlotState,
        clock: Tick,
        message: &SlotMessage,
    ) -> SlotReply {
        let mut sent = *message;
        sent.owner = Self::owner(fault, message.owner);
        let own = |store: &SlotState| {
            let mut owners = store.owners.iter();
            owners.position(|it| it.owner == sent.owner && it.expires_at > clock)
        };
        let is_release = message.want == 0;
        match (fault, own(store)) {
            (Some(Self::AcquiresNotNumbered), Some(own)) if !is_release => {
                store.owners[own].seq = 0;
            }
            (Some(Self::RenewalsNotNumbered), Some(own)) if is_release => {
                store.owners[own].seq = 0;
            }
            (Some(Self::OneExpires), _) => {
                let expired = |at: &Tick| *at <= clock;
                let owners = store.owners.iter_mut().map(|it| &mut it.expires_at);
                for at in owners.filter(|at| expired(at)).skip(1) {
                    *at = clock + 1;
                }
            }
            _ => {}
        }
        if fault == Some(Self::RelativeCounts) {
            (sent.lo, sent.hi) = (0, u32::MAX);
        }
        let before = store.clone();
        let reply = grantor.decide(store, clock, &sent);
        let Some(own) = own(store) else {
            return reply;
        };
        let is_stale = *store == before;
        match fault {
            Some(Self::AlwaysExtends) if !is_stale => {
                store.owners[own].expires_at = clock + store.owners[own].term;
            }
            Some(Self::DeletedAtZero) if store.owners[own].count == 0 => {
                store.owners.remove(own);
            }
            _ => {}
        }
        reply
    }

    /// When a process believes to have sent a message, and its reply.
    pub(super) fn received(
        fault: Option<Self>,
        (sent, now): (Tick, Tick),
        mut reply: SlotReply,
        terms: &SlotTerms,
    ) -> (Tick, SlotReply) {
        match fault {
            Some(Self::DeadlineFromReply) => (now, reply),
            Some(Self::NoMargin) => {
                reply.left += terms.term - terms.deadline(0, terms.term);
                (sent, reply)
            }
            _ => (sent, reply),
        }
    }
}
