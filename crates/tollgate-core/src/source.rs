//! Where a verdict comes from.

/// Where the answer to a check comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store.
    Store,
    /// The deny cache: an earlier denial still holds, so the store was not called.
    DenyCache,
    /// Units that this process holds on lease.
    Lease,
    /// Counted in this process, and reported to the store later.
    Local,
    /// The rule's answer to a store failure.
    Fallback,
    /// The store, out of the [credits](crate::Rule::credits) of the key: the quota had too little left.
    Credits,
}

impl Source {
    /// The word for it in logs: `store`, `deny_cache`, `lease`, `local`, `fallback` or `credits`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Lease => "lease",
            Self::Local => "local",
            Self::Fallback => "fallback",
            Self::Credits => "credits",
        }
    }
}
