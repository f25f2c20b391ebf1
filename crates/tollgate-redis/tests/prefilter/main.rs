//! Leased and eventual rules on real servers, from real processes.
//!
//! Every admission of every process is written down with two times by the clock that the processes of a machine share:
//! before it was asked for, and after it was answered. So it happened in between. Then what is asserted, for one key and with
//! N processes:
//!
//! ```text
//! admitted within [a, b] for certain ≤ (burst + beyond) · (1 + losses) + rate · (b − a)       a bucket
//! admitted within a window for certain ≤ (limit + beyond) · (1 + losses)                       a window
//!
//! beyond   0                       of an exact or a leased rule
//!          N · max_unreported      of an eventual one, with every process that was killed counted once more
//! losses   how often the server lost its states, or its clock was moved ahead
//! ```
//!
//! Units that were granted before a loss were taken from the states of before, so a loss costs a burst and no more.

mod admission;
mod alone;
mod blocks;
mod calendars;
mod calls;
mod clock;
mod credits;
mod durable;
mod faults;
mod fleet;
mod given_back;
mod held_slots;
mod load;
mod partitions;
mod quota_oracle;
mod regions;
mod reports;
mod scheduled;
mod service;
mod slots;
mod worker;
mod workloads;

/// What the other processes do; nothing in this one.
#[test]
fn a_process_plays_its_role() {
    worker::play();
    slots::play();
}
