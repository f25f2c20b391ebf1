//! The algorithms by name.

use std::fmt;

/// The algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AlgorithmKind {
    /// [`gcra`](crate::algorithm::gcra)
    Gcra,
    /// [`token_bucket`](crate::algorithm::token_bucket)
    TokenBucket,
    /// [`leaky_bucket`](crate::algorithm::leaky_bucket)
    LeakyBucket,
    /// [`fixed_window`](crate::algorithm::fixed_window)
    FixedWindow,
    /// [`sliding_window`](crate::algorithm::sliding_window)
    SlidingWindow,
    /// [`sliding_buckets`](crate::algorithm::sliding_buckets)
    SlidingBuckets,
    /// [`sliding_log`](crate::algorithm::sliding_log)
    SlidingLog,
    /// [`concurrent`](crate::algorithm::concurrent)
    Concurrent,
    /// No limit: no call to the store, no header fields.
    Unlimited,
    /// A limit that no request passes: no call to the store, no header fields.
    None,
}

// `name` looks there by the number of an algorithm.
const _: () = {
    let mut at = 0;
    while at < AlgorithmKind::ALL.len() {
        assert!(AlgorithmKind::ALL[at].0 as usize == at);
        at += 1;
    }
    assert!(AlgorithmKind::None as usize + 1 == at);
};

impl AlgorithmKind {
    /// All of them with their names, in their order.
    pub(crate) const ALL: [(Self, &'static str); 10] = [
        (Self::Gcra, "gcra"),
        (Self::TokenBucket, "token_bucket"),
        (Self::LeakyBucket, "leaky_bucket"),
        (Self::FixedWindow, "fixed_window"),
        (Self::SlidingWindow, "sliding_window"),
        (Self::SlidingBuckets, "sliding_buckets"),
        (Self::SlidingLog, "sliding_log"),
        (Self::Concurrent, "concurrent"),
        (Self::Unlimited, "unlimited"),
        (Self::None, "none"),
    ];

    /// The name in metrics, logs and files: `fixed_window`, `gcra`, …
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether units come back one by one, at a rate: [`Gcra`](Self::Gcra) by its three names.
    #[must_use]
    pub const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::Gcra | Self::LeakyBucket)
    }

    /// The algorithm whose states it reads and writes; `None` if it has none.
    pub(crate) const fn state_machine(self) -> Option<Self> {
        match self {
            Self::Unlimited | Self::None => None,
            Self::TokenBucket | Self::LeakyBucket => Some(Self::Gcra),
            other => Some(other),
        }
    }
}

impl fmt::Display for AlgorithmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
