//! What a decision is made of, and what code asks of one.

pub use tollgate_core::{
    Balance, CheckPolicy, Grant, Outcome, Pending, Reason, Reservation, Retry, Source, Ticket,
    Verdict, types::ReservationTicket,
};

pub use crate::rate_limit::RuleVerdict;
