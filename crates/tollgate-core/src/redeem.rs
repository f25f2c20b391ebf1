//! Reservations that leave the process: a ticket becomes a text, and any process that has the rules redeems it.

use std::{sync::Arc, time::Duration};

use crate::{
    error::{StoreError, StoreErrorKind},
    hold::{Hold, Settlement, Source},
    journal::DurableRules,
    limiter::Limiter,
    quota::MAX_PERIOD,
    reservation::{Reservation, Reserved},
    step::Step,
    store::rule_store::{ReservationStore, RuleStore},
    ticket::{Ticket, settlement_to, settlements},
};

/// The shortest term.
const SHORTEST: Duration = Duration::from_millis(1);

impl Ticket {
    /// Makes what the ticket holds a reservation, which another process [redeems](Limiter::redeem): it settles the real cost when the
    /// work is done. At the end of `term`, 1 ms to 3 660 days, the units stay used and the slots go back, unless the reservation is
    /// [extended](ReservationTicket::extend). A ledger gives units of [durable](crate::Rule::durable) rules back then.
    ///
    /// The store keeps an open record of it, and a settlement takes the record away in the same step. So units come back once, whoever
    /// is killed: without the record a redemption is [`Gone`](StoreErrorKind::Gone), and the units stay used.
    ///
    /// ```
    /// use tollgate_core::{
    ///     HOUR, Key, Limiter, MINUTE, MemoryStore, Quota, Rule, StoreErrorKind,
    ///     types::Reservation,
    /// };
    ///
    /// let rules = [Rule::new("at-once", Quota::concurrent(1)), Rule::new("rows", Quota::sliding_window(10_000, HOUR))];
    /// let limiter = Limiter::new(MemoryStore::new(), rules)?;
    /// let tenant = Key::of("acme");
    /// let checks = [limiter.check("at-once", &tenant)?, limiter.check("rows", &tenant)?.with_cost(5_000)];
    /// let decision = limiter.acquire(&checks).ready().expect("memory answers at once");
    /// let ticket = limiter.ticket(&checks, &decision);
    /// let reservation = ticket.into_reservation(10 * MINUTE).ready().expect("at once")?;
    /// let queued = reservation.to_string();
    /// assert!(!limiter.try_acquire("at-once", &tenant)?.is_allowed(), "it holds its slot");
    ///
    /// // Elsewhere, some minutes later: it were 1 200 rows.
    /// let ticket = limiter.redeem(&queued.parse()?)?;
    /// ticket.settle(1_200).ready().expect("at once")?;
    /// assert!(limiter.try_acquire("at-once", &tenant)?.is_allowed());
    /// let left = limiter.peek(&[checks[1].with_cost(0)]).ready().expect("at once");
    /// assert_eq!(left.verdicts()[0].remaining(), 8_800);
    /// let again = ticket.settle(0).ready().expect("at once").unwrap_err();
    /// assert_eq!(again.kind(), StoreErrorKind::Gone);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The store cannot write it, has failed, or the term is none. The ticket is dropped then: its units stay taken, or come back after
    /// [`cancel_on_drop`](Self::cancel_on_drop), and its slots go back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the answer drops the ticket. A record that was written by then has no text: it is taken away, or ends with its term.
    pub fn into_reservation(self, term: Duration) -> Step<Result<Reservation, StoreError>> {
        let slots = &*self.slots;
        let is_local = slots.iter().any(|slot| slot.source == Source::Fallback);
        let store = valid(term).and_then(|()| match is_local {
            true => Err(unsupported(
                "its slots are of this process, which has given them while the store failed, and cannot leave it; run the work \
                 here, or try again when the store answers",
            )),
            false => reservations(&*self.store),
        });
        let is_stored = |hold: &&Hold| hold.source != Source::Fallback;
        let holds: Vec<Hold> = self.holds.iter().filter(is_stored).copied().collect();
        let reserved = Reserved::new(&holds, slots);
        let id = reserved.id;
        let mut answer = match store {
            Ok(store) => store.reserve(reserved, term),
            Err(refused) => Step::Ready(Err(refused)),
        };
        answer.then(move |answer| {
            if answer.is_ok() {
                if let Some(durable) = &self.durable {
                    durable.reserved(id, &holds, term);
                }
                // The record has slots of its own, so those of the ticket go back.
                self.forget();
            }
        });
        answer
    }
}

impl Limiter {
    /// Gives back what was [made a reservation](Ticket::into_reservation), in any process with these rules on the store: on Redis one
    /// with the same secret and namespace, in memory the same process. It does not ask the store yet: a missing record shows when it is
    /// settled.
    ///
    /// # Errors
    ///
    /// The text was cut, changed, or is of another store or secret; or the reservation is
    /// [gone](StoreErrorKind::Gone), also because a rule is gone or has another algorithm.
    pub fn redeem(&self, reservation: &Reservation) -> Result<ReservationTicket, StoreError> {
        let store = Arc::clone(self.rule_store());
        let reserved = reservations(&*store)?.reserved(reservation)?;
        Ok(ReservationTicket {
            store,
            reserved,
            durable: self.durable_rules().cloned(),
        })
    }
}

/// What a reservation holds. Dropping it changes nothing: the reservation stays open, and may be redeemed again.
///
/// The first call that settles it, of any process, is carried out; later ones are [`Gone`](StoreErrorKind::Gone). So
/// a call that [may succeed later](StoreError::is_transient) can be made again: if it is `Gone` then, the first one may have been
/// carried out.
#[must_use = "the reservation stays open until it is settled"]
#[derive(Debug)]
pub struct ReservationTicket {
    store: Arc<dyn RuleStore>,
    reserved: Reserved,
    /// Hears of settlements.
    durable: Option<Arc<DurableRules>>,
}

impl ReservationTicket {
    /// Settles what each rule took to what it really `cost`, as [`Ticket::settle`] does, and frees the slots.
    ///
    /// # Errors
    ///
    /// The reservation is gone, or the store has failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the answer undoes nothing.
    pub fn settle(&self, cost: u64) -> Step<Result<(), StoreError>> {
        self.settle_each(|_, _| Some(cost))
    }

    /// Settles each rule to a cost of its own, by its name and what it took; `None` leaves what it took.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As for [`settle`](Self::settle).
    pub fn settle_each(
        &self,
        mut cost: impl FnMut(&str, u64) -> Option<u64>,
    ) -> Step<Result<(), StoreError>> {
        let rules = self.store.rules();
        let how = |hold: &Hold| {
            let rule = rules.rule_of(&hold.check)?;
            settlement_to(hold, cost(rule.name(), hold.check.cost()))
        };
        let (id, holds) = (self.reserved.id, &self.reserved.holds);
        let hows: Vec<Option<Settlement>> = holds.iter().map(how).collect();
        let settlements: Vec<_> = settlements(holds, &self.reserved.slots, &hows).collect();
        let mut answer = match reservations(&*self.store) {
            Ok(store) => store.redeem(&self.reserved, &settlements),
            Err(refused) => Step::Ready(Err(refused)),
        };
        if let Some(durable) = self.durable.clone() {
            let holds = holds.clone();
            answer.then(move |answer| {
                if may_have_run(answer) {
                    durable.redeemed(id, &holds, &hows);
                }
            });
        }
        answer
    }

    /// Gives everything back.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    ///
    /// # Cancel safety
    ///
    /// As for [`settle`](Self::settle).
    pub fn cancel(&self) -> Step<Result<(), StoreError>> {
        self.settle(0)
    }

    /// Lets the reservation end `term` from now, with its slots.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle), and for a term that [`into_reservation`](Ticket::into_reservation) refuses.
    ///
    /// # Cancel safety
    ///
    /// As for [`settle`](Self::settle).
    pub fn extend(&self, term: Duration) -> Step<Result<(), StoreError>> {
        let mut answer = match valid(term).and_then(|()| reservations(&*self.store)) {
            Ok(store) => store.extend(&self.reserved, term),
            Err(refused) => Step::Ready(Err(refused)),
        };
        if let Some(durable) = self.durable.clone() {
            let (id, holds) = (self.reserved.id, self.reserved.holds.clone());
            answer.then(move |answer| {
                if may_have_run(answer) {
                    durable.reserved(id, &holds, term);
                }
            });
        }
        answer
    }
}

/// Of an unknown outcome, a ledger hears what was asked: it would give everything back at the term, and the store may have.
fn may_have_run(answer: &Result<(), StoreError>) -> bool {
    !matches!(answer, Err(refused) if refused.kind() != StoreErrorKind::Timeout)
}

fn reservations(store: &dyn RuleStore) -> Result<&dyn ReservationStore, StoreError> {
    store.reservations().ok_or_else(|| {
        unsupported(
            "this store keeps no reservations; settle the ticket in this process, or take a MemoryStore or a RedisStore",
        )
    })
}

fn valid(term: Duration) -> Result<(), StoreError> {
    match (SHORTEST..=MAX_PERIOD).contains(&term) {
        true => Ok(()),
        false => Err(unsupported(format!(
            "a reservation cannot have a term of {term:?}; take 1 ms to 3660 days, such as an hour"
        ))),
    }
}

fn unsupported(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, message)
}
