//! The memory of one process, measured: the store in memory is filled with clients.

use tollgate::{Consistency, Key, Limiter, ManualClock, MemoryStore, Rule};

use crate::failure::Failure;

/// The clients that are counted for real. Tables double when they are full, so that a power of two of them is a measure for as many
/// times the clients.
const MEASURED: u64 = 1 << 16;

/// The default bound of the store.
pub(crate) const DEFAULT_BOUND: u64 = 64 << 20;

/// The bytes that the clients of a rule take in a process that keeps them in memory.
pub(crate) fn bytes(rule: &tollgate_core::Rule, clients: u64) -> Result<u64, Failure> {
    let mut halvings = 0;
    while clients >> halvings > MEASURED {
        halvings += 1;
    }
    let measured = (clients >> halvings).max(1);
    let clock = ManualClock::new(0);
    let store = MemoryStore::builder()
        .clock(clock)
        .bytes_per_rule(usize::MAX >> 1)
        .build();
    let rule = rule.clone().consistency(Consistency::Exact);
    let name = rule.name().to_owned();
    let limiter = Limiter::new(store, [Rule::from(rule)]).map_err(Failure::failed)?;
    for client in 0..measured {
        let key = Key::of(client.to_string());
        let _ = limiter.try_acquire(&name, &key).map_err(Failure::failed)?;
    }
    let usage = limiter.rule_store().usage(0);
    Ok(usage.map_or(0, |usage| usage.bytes) << halvings)
}
