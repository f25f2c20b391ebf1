//! Leased and eventual rules on real servers, from real processes.
//!
//! Every admission of every process is written down with two times by the clock that the processes of a machine share:
//! before it was asked for, and after it was answered. So it happened in between. Then what is asserted, for N processes:
//!
//! ```text
//! admitted within [a, b] for certain ≤ (burst + beyond) · (1 + losses) + rate · (b − a)       a bucket
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
mod clock;
mod durable;
mod faults;
mod fleet;
mod held_slots;
mod load;
mod partitions;
mod quota_oracle;
mod regions;
mod reports;
mod service;
mod slots;
mod worker;

/// What the other processes do; nothing in this one.
#[test]
fn a_process_plays_its_role() {
    worker::play();
    slots::play();
}
