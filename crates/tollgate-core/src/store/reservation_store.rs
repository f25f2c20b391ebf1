//! What a store does for reservations.

use std::time::Duration;

use crate::{
    error::StoreError,
    hold::{Hold, Settlement},
    reservation::{Reservation, Reserved},
    step::Step,
};

/// How holds of a reservation are settled: those of a cost of 0 only say where the states of the others lie.
#[derive(Clone, Debug)]
pub struct ReservedSettlement {
    /// The holds.
    pub holds: Vec<Hold>,
    /// What to do with their units.
    pub how: Settlement,
}

/// A rule set on a store that keeps open records of [reservations](crate::Reservation). Where there is no record, nothing is done, and
/// the answer is [`gone`](crate::store::gone).
pub trait ReservationStore {
    /// Opens a record of what a request holds, which ends after `term`, and writes it as a text, which is not to be guessed. Slots are
    /// counted for the record as well until it ends: those of the request go back when the answer is there.
    fn reserve(&self, reserved: Reserved, term: Duration) -> Step<Result<Reservation, StoreError>>;

    /// What a text says, for the rules as they are here. It need not know whether the record is there.
    ///
    /// # Errors
    ///
    /// The text is [not one](crate::store::foreign) of this store, or a rule is gone.
    fn reserved(&self, text: &Reservation) -> Result<Reserved, StoreError>;

    /// Takes the record away, frees its slots, and settles units as said, in one step.
    fn redeem(
        &self,
        reserved: &Reserved,
        settlements: &[ReservedSettlement],
    ) -> Step<Result<(), StoreError>>;

    /// Lets the record and its slots end `term` from now.
    fn extend(&self, reserved: &Reserved, term: Duration) -> Step<Result<(), StoreError>>;
}
