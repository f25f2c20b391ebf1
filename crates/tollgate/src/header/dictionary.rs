//! `RateLimit` of draft-7: one dictionary.
//!
//! ```text
//! RateLimit: limit=100, remaining=50, reset=17
//! ```

use http::{HeaderMap, HeaderValue};

use crate::header::{
    name::RATELIMIT,
    seconds::whole_seconds,
    standing::Standing,
    structured::{self, Line, push_integer},
    written::Written,
};

/// Writes the field, unless an inner limiter has written one that leaves less.
pub(super) fn write(map: &mut HeaderMap, standing: &Standing) {
    let reset = whole_seconds(standing.lasts);
    if map
        .get(RATELIMIT)
        .is_some_and(|value| read(value).leaves_less(standing.remaining, reset))
    {
        return;
    }
    let mut line = Line::new();
    line.extend_from_slice(b"limit=");
    push_integer(&mut line, standing.limit);
    line.extend_from_slice(b", remaining=");
    push_integer(&mut line, standing.remaining);
    line.extend_from_slice(b", reset=");
    push_integer(&mut line, reset);
    if let Some(value) = structured::value(&line) {
        let _ = map.try_insert(RATELIMIT, value);
    }
}

fn read(value: &HeaderValue) -> Written {
    let member = |name: &str| {
        value.to_str().ok()?.split(',').find_map(|member| {
            let (key, number) = member.split_once('=')?;
            (key.trim() == name).then(|| number.trim().parse().ok())?
        })
    };
    Written {
        remaining: member("remaining"),
        reset: member("reset"),
    }
}
