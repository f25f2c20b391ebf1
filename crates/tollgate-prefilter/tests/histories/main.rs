//! Random histories of thousands of steps, with the terms and sizes of real quotas, held to exact oracles; and what a process does about
//! slots.

mod buckets;
mod clock_steps;
mod cluster;
mod freshness;
mod oracle;
mod reports;
mod retries;
mod slots;
mod windows;
