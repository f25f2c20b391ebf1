//! What a decision is made of, and what code asks of one.

pub use tollgate_core::{
    Outcome, Pending, Reason, Retry, Source, Ticket, Verdict,
    types::{Reservation, ReservationTicket},
};
