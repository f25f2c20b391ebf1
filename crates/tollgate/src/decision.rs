//! What a decision is made of, and what code asks of one.

pub use tollgate_core::{
    Balance, CheckPolicy, Grant, Pending, Reservation, Ticket, Verdict, types::ReservationTicket,
};

pub use crate::rate_limit::RuleVerdict;
