//! What a process may answer alone, in front of a limit that many processes share.
//!
//! Everything here is a state machine: told the time, it says what to do, and does no I/O. A store runs it over its
//! connections, the tests run it in a model checker, and a simulator over a network of its own. It is the same code in all
//! three.
//!
//! # Leases
//!
//! A process takes a [`Grant`] of units in advance and spends it alone. Done plainly that lets too much through: while leases
//! are out the bucket refills to its burst, and then both are spent. So **units out on lease are held back from the burst**:
//! with `H` units out, the bucket fills to `burst − H` and no further.
//!
//! ```text
//! v  what the exact bucket would hold      c  what the store's holds      h  units granted and not spent
//!
//! c + h ≤ v       always: spending and granting keep it, time adds to c and v alike,
//!                 and where v stands at the burst, c is held to burst − H, with H ≥ h
//! ```
//!
//! The store's side is a [`BucketGrantor`] or a [`WindowGrantor`], a process's side a [`LeaseHolder`] for each key. A
//! [`tracked`](Grant::Tracked) lease lives for ten seconds and is tracked by the store: what is left of it may go back. All of
//! them together are at most the [`reserve`](LeaseTerms::reserve).
//!
//! An empty bucket has nothing to lease. What it grants then are [`schedule`](Grant::Scheduled) of the future, for a second at most:
//! units that it has yet to get are taken from it at once, so that it owes them, and the process spends each when it has come
//! back, and none before all that was taken earlier has. So processes stand in line, and while they do none has to ask. A
//! scheduled lease is over before the bucket could be full.
//!
//! ```text
//! s  the time from which a scheduled's units come back      r  the rate
//!
//! admitted until t ≤ all that was taken before + r · (t − s) ≤ what the exact bucket has given until t,
//!                    for at s all that was taken before has come back
//! ```
//!
//! What is granted of a window is counted in it at once, so nothing has to be held back. A unit that comes back after its lease was replaced,
//! because its request was not let through after all, is [never lost](LeaseHolder#units-that-come-back) in a window; a bucket loses it,
//! and gets it again with time.
//!
//! All times that a process is told are durations, and it counts them from when it **sent** its query: counted from the
//! answer, a lease would live on in the process after the store has forgotten it. Only when the units of a scheduled lease come back is
//! counted from the **answer**: from the query, they would be spent too early.
//!
//! A process's clock has to go on while its machine sleeps. By one that stands still meanwhile, as most monotonic clocks do,
//! what was held is spent after it wakes, above the limit by at most that, once.
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
//! // A busy process: a request every millisecond. Each is on_reply from the grant, or queries.
//! let mut asked = 0;
//! for request in 0..1_000 {
//!     let now = 1_700_000_000_000_000 + request * 1_000;
//!     if holder.spend(now, 1) {
//!         continue;
//!     }
//!     asked += 1;
//!     let query = holder.query(now, 1, &terms);
//!     let (answer, grant) = grantor.acquire(&mut state, now, 1, &query);
//!     assert!(answer.fits);
//!     let _ = holder.on_reply((now, now), now, grant, &terms);
//! }
//! assert!(asked < 300);
//! # Ok::<(), tollgate_prefilter::NoLease>(())
//! ```
//!
//! What cannot be granted says why, and is [`Exact`](tollgate_core::Consistency::Exact):
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
//! A [`LocalUsage`] admits what the store last said is left, and reports it afterwards. It never holds more than
//! `max_unreported` units that the store does not know of, so all N processes together are above the limit by at most
//! `N · max_unreported`.

mod effective;
mod lease;
mod report;

pub use self::{
    effective::{DowngradeReason, Effective},
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
};

/// Runs the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
