//! Three fields of one number each: `RateLimit-*` of draft-6, and `X-RateLimit-*`.
//!
//! ```text
//! RateLimit-Limit: 100
//! RateLimit-Remaining: 50
//! RateLimit-Reset: 17
//! ```

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::MAX_UNITS;

use crate::header::{
    inner_quota::InnerQuota,
    name::{
        RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET, X_RATELIMIT_LIMIT,
        X_RATELIMIT_REMAINING, X_RATELIMIT_RESET,
    },
    quota_status::QuotaStatus,
};

/// The names of the three.
#[derive(Debug)]
pub(super) struct Triple {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

pub(super) static DRAFT_6: Triple = Triple {
    limit: RATELIMIT_LIMIT,
    remaining: RATELIMIT_REMAINING,
    reset: RATELIMIT_RESET,
};

pub(super) static X_RATELIMIT: Triple = Triple {
    limit: X_RATELIMIT_LIMIT,
    remaining: X_RATELIMIT_REMAINING,
    reset: X_RATELIMIT_RESET,
};

impl Triple {
    /// Writes all three, unless an inner limiter has written fewer remaining units.
    pub(super) fn write(&self, map: &mut HeaderMap, status: &QuotaStatus, reset: u64) {
        if self.read(map).leaves_less(status.remaining, reset) {
            return;
        }
        for (name, number) in [
            (&self.limit, status.limit),
            (&self.remaining, status.remaining),
            (&self.reset, reset),
        ] {
            let _ = map.try_insert(name, HeaderValue::from(number.min(MAX_UNITS)));
        }
    }

    fn read(&self, map: &HeaderMap) -> InnerQuota {
        let number = |name| map.get(name)?.to_str().ok()?.trim().parse().ok();
        InnerQuota {
            remaining: number(&self.remaining),
            reset: number(&self.reset),
        }
    }
}
