//! From a quota to its text.

use std::fmt;

#[cfg(feature = "serde")]
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    algorithm_kind::AlgorithmKind,
    quota::{DEFAULT_BUCKETS, Quota},
    quota_text::period::{InstantText, PeriodText},
};

/// The text that [parses](#impl-FromStr-for-Quota) back to the quota: `gcra 100/min burst 20`.
///
/// ```
/// use tollgate_core::{HOUR, MINUTE, Quota, SECOND};
///
/// assert_eq!(Quota::per_second(10).to_string(), "gcra 10/s");
/// assert_eq!(Quota::gcra(100, MINUTE).burst(20).to_string(), "gcra 100/min burst 20");
/// assert_eq!(Quota::token_bucket(50).refill(10, 30 * SECOND).to_string(), "token_bucket 10/30s burst 50");
/// assert_eq!(Quota::sliding_buckets(1_000, HOUR).buckets(12).to_string(), "sliding_buckets 1000/h buckets 12");
/// assert_eq!(Quota::concurrent(3).to_string(), "concurrent 3");
/// assert_eq!(Quota::concurrent(3).typically(30 * SECOND).to_string(), "concurrent 3 typically 30s");
/// assert_eq!(Quota::unlimited().to_string(), "unlimited");
/// assert_eq!(Quota::none().to_string(), "none");
/// ```
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "calendar")]
        if let Some(calendar) = self.calendar_of() {
            return write!(f, "calendar {}/{calendar}", self.limit());
        }
        f.write_str(self.algorithm().name())?;
        match self.algorithm() {
            AlgorithmKind::Unlimited => {}
            AlgorithmKind::None => {
                if let Some(end) = self.ends_at_tick() {
                    write!(f, " until {}", InstantText(end))?;
                }
            }
            AlgorithmKind::Concurrent => {
                write!(f, " {}", self.limit())?;
                if let Some(typical) = self.typical_hold_time() {
                    write!(f, " typically {}", PeriodText(typical))?;
                }
            }
            _ => write!(f, " {}/{}", self.rate(), PeriodText(self.period()))?,
        }
        if self.algorithm().is_bucket() && self.limit() != self.rate() {
            write!(f, " burst {}", self.limit())?;
        }
        match self.algorithm() {
            AlgorithmKind::SlidingBuckets if self.bucket_count() != DEFAULT_BUCKETS => {
                write!(f, " buckets {}", self.bucket_count())
            }
            _ => Ok(()),
        }
    }
}

// As the same text in documents.

#[cfg(feature = "serde")]
impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From its text.
#[cfg(feature = "serde")]
impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Quota;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quota as text, such as \"gcra 100/min burst 20\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quota, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}
