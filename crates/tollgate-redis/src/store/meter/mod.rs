//! The accuracy meter: a sampled share of keys is followed exactly, while the service runs.
//!
//! For each rule, a sampled key has a second state in Redis, the *reference*, with the same quota. The reference decides nothing:
//! it counts every admitted request, whether it fits or not, and answers whether a refused request would have fitted. So it
//! knows what an exact store that never fails would have known.
//!
//! Events are sent to the reference after the decision, in the order of the decisions and with their times. No request waits for
//! that. Events that cannot be sent are counted as dropped, and not sent later.
//!
//! Events of two processes may reach the reference in another order than they happened. So a decision that looks wrong is only
//! suspected. It is rechecked when the other events have arrived, and counts as wrong only if it still looks wrong, also without
//! the units that the reference is uncertain of.

mod audit;
mod event_queue;
mod event_sender;
mod first_look;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod meter;
mod recheck_query;
mod recheck_task;
mod rechecks;
mod reference;
mod tolerance;

pub(super) use self::meter::Meter;
