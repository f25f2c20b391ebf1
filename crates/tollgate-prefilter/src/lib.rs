//! The part of [tollgate-redis](https://docs.rs/tollgate-redis) that does no I/O: the local decisions of a process in front of a
//! rate limit that many processes share. It is published for that crate alone, which depends on exactly this version. It has no API
//! of its own: anything in it may change with any release. To limit a server, take [tollgate](https://docs.rs/tollgate).
//!
//! The time is passed in. So the same code runs over real connections, in a model checker, and in a simulator.
//!
//! A store has one [`Engine`], to which each of its rule sets is [bound](LocalRules::new). It is asked and
//! answers, and calls nobody back:
//!
//! ```text
//! LocalRules::begin(checks, now) ──► Decided(decision)              from a lease, local usage, or an earlier denial
//!                              └───► Query ── Engine::fill(query, now) ── store ── Query::finish(reply, now)
//!                                                                                  ├──► Done(decision, follow_up)
//!                                                                                  └──► Query(query)   states in other places
//! ```
//!
//! [`Engine::fill`] puts the unreported usage of the request's keys into the query, and the leases that are used up, and which leases
//! the process wants. A reply that never comes is finished with [`NoReply`]; a query that is dropped counts as one whose
//! outcome is unknown. When a rule denies, units that were spent locally go back to where they came from, and what other places
//! took is cancelled. [`FollowUp`] is what the store sends then, without a request that waits for it.
//!
//! Every time that a store sends is a duration. A process adds it to the time at which it **sent** its query: added to the time of the
//! reply, a lease would outlive what the store knows of it. The clock of a process has to go on while its machine sleeps. With a clock
//! that stands still, as most monotonic clocks do, a process spends its leases after it wakes: once, and above the limit by at
//! most their units.
//!
//! Start with `engine/begin.rs`. The heads of `lease/`, `local_usage.rs` and `slots.rs` say what a process does alone, and
//! `docs/design/` in the repository why it may. What a store does is in `tests/reference/`.

#![expect(clippy::must_use_candidate, reason = "one crate calls it")]

mod denials;
mod engine;
mod lease;
mod local_usage;
mod slots;
mod sync;
mod table;

pub use self::{
    engine::{
        begin::Begin,
        engine::{Engine, EngineEvent, EngineUsage},
        limit::Effective,
        local_rules::{LocalRules, Places},
        process_slots::ProcessSlots,
        query::{Counted, FollowUp, LeaseItem, LeaseReply, Next, Query, Reply},
        request::NoReply,
    },
    lease::{
        lease_holder::LeaseHolder,
        terms::{Grant, LeaseQuery, LeaseTerms, ReturnedLease, ScheduleTerms},
    },
    local_usage::ReportTerms,
    slots::{
        SlotHolder, SlotKey, SlotMessage, SlotOutcome, SlotOwner, SlotReply, SlotTarget, SlotTerms,
    },
};
