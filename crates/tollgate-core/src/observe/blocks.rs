//! Blocks: what operators are told when one begins, or has to go early.

use crate::{block::ActiveBlock, key::Fingerprint, rule::Rule};

/// A block of a key has begun: for stores, once for each.
pub fn block_began(rule: &Rule, key: Fingerprint, block: ActiveBlock) {
    #[cfg(feature = "metrics")]
    super::rule_metrics::blocks_of(rule, block.level).increment(1);
    #[cfg(feature = "tracing")]
    super::events::blocked(rule, key, block);
    let _ = (rule, key, block);
}

/// Blocks in force had to go early: this many so far in a part of the rule's table. Told at each power of two.
pub(crate) fn blocks_evicted(rule: &Rule, evicted: u64) {
    #[cfg(feature = "tracing")]
    if evicted.is_power_of_two() {
        super::events::block_evicted(rule, evicted);
    }
    let _ = (rule, evicted);
}
