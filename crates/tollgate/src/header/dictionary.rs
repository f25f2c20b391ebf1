//! `RateLimit` of draft-7: one dictionary.
//!
//! ```text
//! RateLimit: limit=100, remaining=50, reset=17
//! ```

use http::{HeaderMap, HeaderValue};

use crate::header::{
    inner_quota::InnerQuota,
    line::Line,
    name::RATELIMIT,
    quota_status::QuotaStatus,
    seconds::whole_seconds,
    structured::{self, push_integer},
};

/// Writes the field, unless an inner limiter has written one with fewer remaining units.
pub(super) fn write(map: &mut HeaderMap, status: &QuotaStatus) {
    let reset = whole_seconds(status.lasts);
    if map
        .get(RATELIMIT)
        .is_some_and(|value| read(value).leaves_less(status.remaining, reset))
    {
        return;
    }
    let mut line = Line::new();
    line.push(b"limit=");
    push_integer(&mut line, status.limit);
    line.push(b", remaining=");
    push_integer(&mut line, status.remaining);
    line.push(b", reset=");
    push_integer(&mut line, reset);
    if let Some(value) = structured::value(&line) {
        let _ = map.try_insert(RATELIMIT, value);
    }
}

fn read(value: &HeaderValue) -> InnerQuota {
    let member = |name: &str| {
        value.to_str().ok()?.split(',').find_map(|member| {
            let (key, number) = member.split_once('=')?;
            (key.trim() == name).then(|| number.trim().parse().ok())?
        })
    };
    InnerQuota {
        remaining: member("remaining"),
        reset: member("reset"),
    }
}
