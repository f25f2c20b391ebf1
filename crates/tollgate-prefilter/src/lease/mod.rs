//! Units in advance: a process serves requests from a *lease* without calling the store. A naive implementation exceeds the limit:
//! while leases are out the bucket refills to its burst, and then the burst and the leases are spent. So **leased units are held
//! back from the burst**: with `H` units on lease, the bucket refills to `burst − H` and no further.
//!
//! ```text
//! v  the exact level of the bucket      c  the store's level      h  units on lease and not spent
//!
//! c + h ≤ v       always: spending and granting preserve it, time adds to c and v alike,
//!                 and where v is at the burst, c is held to burst − H, with H ≥ h
//! ```
//!
//! The store tracks a tracked lease for ten seconds, and takes unspent units of it back. All tracked leases of a key together are at
//! most the reserve. Leased units of a window are counted in it at once, so nothing has to be held back.
//!
//! Once a bucket is empty there is nothing left to lease. The store then grants *scheduled leases*: a slice of the
//! capacity that will be refilled within the next two seconds. Its units are taken from the bucket at once, which overdraws it, and
//! the process spends each one when it has been refilled, after everything that was taken earlier. So processes alternate, and call
//! the store about once a second. A scheduled lease ends before the bucket could be full. Its schedule begins with the **reply**:
//! with the query, its units would be spent too early.
//!
//! ```text
//! s  the time from which the units of a scheduled lease are refilled      r  the rate
//!
//! admitted until t ≤ all that was taken before + r · (t − s) ≤ what the exact bucket has given until t,
//!                    for at s all that was taken before has been refilled
//! ```
//!
//! `lease_holder.rs` is a process's side, `terms.rs` says how large a lease is, `docs/design/leases.md` has the proof.

pub(crate) mod lease_holder;
pub(crate) mod terms;
