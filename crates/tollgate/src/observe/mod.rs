//! What operators see: metrics with the feature `metrics`, events with the feature `tracing`, and top keys.
//! [Operating](crate::guide::operating) lists the metrics and events.
//!
//! A [`Limiter`](crate::Limiter) reports its decisions, in a layer or without one. A layer also reports requests without
//! a key and set-up mistakes, such as a server that does not pass on the peer's address.
//!
//! ```
//! use tollgate::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
//!
//! let rule = Rule::new("mails", Quota::gcra(60, MINUTE)).top_keys();
//! let limiter = Limiter::new(MemoryStore::new(), [rule])?;
//! for account in ["ada", "bob", "ada", "ada"] {
//!     let _ = limiter.try_acquire("mails", &Key::of(account))?;
//! }
//! let top = limiter.top_keys("mails", 10)?;
//! let ada = limiter.check("mails", &Key::of("ada"))?.key().prefix();
//! assert_eq!((top[0].key, top[0].at_least, top[0].at_most), (ada, 3, 3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod observer;

pub use crate::rate_limit::TopKeysEndpoint;

pub(crate) use self::observer::{Observer, Route};
pub use tollgate_core::observe::BUCKETS;
#[cfg(feature = "metrics")]
pub use tollgate_core::observe::flush_metrics;
