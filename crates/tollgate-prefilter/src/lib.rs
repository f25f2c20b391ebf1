//! The local decisions of a process in front of a rate limit that many processes share.
//!
//! For authors of stores: [tollgate-redis](https://docs.rs/tollgate-redis) is built on it. To limit a server, take
//! [tollgate](https://docs.rs/tollgate). Its [glossary](https://docs.rs/tollgate/latest/tollgate/guide/glossary/index.html) says what
//! the words mean.
//!
//! The time is passed in, and nothing does I/O. The same code runs in a store over real connections, in a model checker, and in a
//! simulator.
//!
//! # The engine
//!
//! A store has one [`Engine`], to which each of its rule sets is [bound](Engine::bind). A request takes two calls:
//!
//! ```text
//! BoundRules::begin(checks, now) ──► Decided(decision)              from a lease, local usage, or the deny cache
//!                              └───► Query ── send ── store ── Query::finish(reply, now) ──► Done { decision, follow_up }
//!                                                                                      └───► Query(query)   states in other places
//! ```
//!
//! [`Query::send`] carries the unreported usage of the request's keys, and the leases that are used up, and says which leases the
//! process wants. A reply that never comes is finished with [`NoReply`]; a query that is dropped counts as one whose
//! outcome is unknown. When a rule denies, units that were spent locally go back to where they came from, and what other places
//! took is cancelled. [`FollowUp`] is what the store sends then, without a request that waits for it.
//!
//! # Leases
//!
//! A store grants a process a number of units in advance: a *lease*. The process serves requests from it without calling the
//! store. A naive implementation exceeds the limit: while leases are out the bucket refills to its burst, and then the burst and the
//! leases are spent. So **leased units are held back from the burst**: with `H` units on lease, the bucket refills to `burst − H`
//! and no further.
//!
//! ```text
//! v  the exact level of the bucket      c  the store's level      h  units on lease and not spent
//!
//! c + h ≤ v       always: spending and granting preserve it, time adds to c and v alike,
//!                 and where v is at the burst, c is held to burst − H, with H ≥ h
//! ```
//!
//! On the store's side, a [`BucketGrantor`] or a [`WindowGrantor`] grants leases; in a process, a [`LeaseHolder`] for each key holds
//! one. The store tracks a [tracked lease](Grant::Tracked) for ten seconds, and takes unspent units of it back. All tracked leases
//! of a key together are at most the [`reserve`](LeaseTerms::reserve).
//!
//! Once a bucket is empty there is nothing left to lease. The store then grants [*scheduled leases*](Grant::Scheduled): a slice of the
//! capacity that will be refilled within the next two seconds. Its units are taken from the bucket at once, which overdraws it, and
//! the process spends each one when it has been refilled, after everything that was taken earlier. So processes alternate, and call
//! the store about once a second. A scheduled lease ends before the bucket could be full.
//!
//! ```text
//! s  the time from which the units of a scheduled lease are refilled      r  the rate
//!
//! admitted until t ≤ all that was taken before + r · (t − s) ≤ what the exact bucket has given until t,
//!                    for at s all that was taken before has been refilled
//! ```
//!
//! Leased units of a window are counted in it at once, so nothing has to be held back. A unit is refunded when its request is not let
//! through after all. If its lease has been replaced by then, a window [never loses it](LeaseHolder#units-that-come-back); a bucket
//! loses it, and refills it with time.
//!
//! Every time that a store sends is a duration. A process adds it to the time at which it **sent** its query: added to the time of the
//! reply, a lease would outlive what the store knows of it. Only the schedule of a scheduled lease begins with the **reply**:
//! with the query, its units would be spent too early.
//!
//! `docs/design/leases.md` in the repository has the protocol step by step, its proof, how it is checked, and what was tried.
//!
//! The clock of a process has to go on while its machine sleeps. With a clock that stands still, as most monotonic clocks do, a process
//! spends its leases after it wakes: once, and above the limit by at most their units.
//!
//! ```
//! use tollgate_core::{MINUTE, Quota};
//! use tollgate_prefilter::{BucketGrantor, BucketState, LeaseHolder, LeaseTerms};
//!
//! let quota = Quota::gcra(6_000, MINUTE);
//! let terms = LeaseTerms::new(&quota, 100)?;
//! let grantor = BucketGrantor::new(&quota, terms).expect("a bucket");
//! let (mut state, mut holder) = (BucketState::default(), LeaseHolder::default());
//!
//! // A busy process: a request every millisecond. Each is served from the lease, or queries the store.
//! let mut queries = 0;
//! for request in 0..1_000 {
//!     let now = 1_700_000_000_000_000 + request * 1_000;
//!     if holder.spend(now, 1) {
//!         continue;
//!     }
//!     queries += 1;
//!     let query = holder.query(now, 1, &terms);
//!     let (answer, grant) = grantor.acquire(&mut state, now, 1, &query);
//!     assert!(answer.fits);
//!     let _ = holder.on_reply((now, now), now, grant, &terms);
//! }
//! assert!(queries < 300);
//! # Ok::<(), tollgate_prefilter::NoLease>(())
//! ```
//!
//! A quota that cannot be leased says why; its rule is [`Exact`](tollgate_core::Consistency::Exact):
//!
//! ```
//! use tollgate_core::{MINUTE, Quota};
//! use tollgate_prefilter::{LeaseTerms, NoLease};
//!
//! assert_eq!(LeaseTerms::new(&Quota::gcra(10, MINUTE), 100), Err(NoLease::Small));
//! assert_eq!(LeaseTerms::new(&Quota::sliding_log(100, MINUTE), 100), Err(NoLease::Algorithm));
//! ```
//!
//! # Reports
//!
//! [`LocalUsage`] admits what the store last said is left, and reports it afterwards. It never holds more than `max_unreported`
//! unreported units, so N processes together exceed the limit by at most `N · max_unreported`.
//!
//! # Slots
//!
//! A limit on how many requests of a key run at once. A [`SlotGrantor`] counts them for all processes; a [`SlotHolder`] is a
//! process's side. A process is known for a term after its last [message](SlotMessage), which says what it has in use: if it crashes, its slots are free then.

mod deny;
mod effective;
mod engine;
mod lease;
mod report;
mod slots;
mod sync;
mod table;

pub use self::{
    effective::{DowngradeReason, Effective},
    engine::{
        Begin, BoundRules, Done, Engine, EngineEvents, EngineOptions, EngineUsage, FollowUp,
        GrantReply, IndexSet, LeaseEvent, LeaseItem, LeaseReply, Next, NoReply, Query, Reply,
        ReportEvent, ReportReply, Reset, StoreRules,
    },
    lease::{
        bucket_grantor::{BucketGrantor, BucketState, TrackedLeases},
        demand::Demand,
        grant::{Grant, LeaseQuery, ReturnedLease},
        lease_holder::LeaseHolder,
        schedule_terms::ScheduleTerms,
        terms::{LeaseTerms, NoLease, TRACKED_LIFE},
        window_grantor::{WindowGrantor, WindowState},
    },
    report::{
        local_usage::{LocalUsage, Spend},
        terms::{NoReports, ReportTerms},
    },
    slots::{
        slot_grantor::{SlotGrantor, SlotRecord, SlotState},
        slot_holder::{SlotHolder, SlotStart},
        slot_message::{SlotMessage, SlotOutcome, SlotOwner, SlotReply},
        slot_table::{SlotCounts, SlotKey, SlotTable},
        slot_terms::SlotTerms,
    },
    table::table_usage::TableUsage,
};

/// Runs the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
