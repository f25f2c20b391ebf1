//! Merging the lists of nested limiters that share a rule.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::header::{
    inner_quota::InnerQuota,
    line::Line,
    name::{RATELIMIT, RATELIMIT_POLICY},
    structured::{self, separate},
};

/// A member of a list that begins with a quoted name, as `"name";r=9;t=60` does.
struct Member<'a> {
    name: &'a str,
    parameters: &'a str,
}

/// Keeps one member per name in the lists that were just appended to: the one with fewer remaining units, and its policy. If they
/// are equal, those of the inner limiter.
pub(super) fn merge_same_names(map: &mut HeaderMap) {
    let limits: Vec<_> = map.get_all(RATELIMIT).iter().cloned().collect();
    let Some((ours, inner)) = limits.split_last() else {
        return;
    };
    // The names in both lists: those whose remaining units are fewer in ours, and the others.
    let (mut less, mut more) = (Vec::new(), Vec::new());
    for our in members(ours) {
        let mut same = inner.iter().flat_map(members);
        if let Some(theirs) = same.find(|member| member.name == our.name) {
            let ours = our.written();
            let stays = ours.remaining.is_none_or(|remaining| {
                // Slots have no reset.
                let reset = ours.reset.unwrap_or_default();
                theirs.written().leaves_less(remaining, reset)
            });
            let names = if stays { &mut more } else { &mut less };
            names.push(our.name);
        }
    }
    if less.is_empty() && more.is_empty() {
        return;
    }
    for field in [RATELIMIT, RATELIMIT_POLICY] {
        let values: Vec<_> = map.get_all(&field).iter().cloned().collect();
        // The last value is ours, if we wrote one; no name is removed from both.
        let last = values.len().saturating_sub(1);
        map.remove(&field);
        for (place, value) in values.iter().enumerate() {
            let gone = if place == last { &more } else { &less };
            append_without(map, &field, value, gone);
        }
    }
}

fn append_without(map: &mut HeaderMap, field: &HeaderName, value: &HeaderValue, gone: &[&str]) {
    if !members(value).any(|member| gone.contains(&member.name)) {
        let _ = map.try_append(field, value.clone());
        return;
    }
    let mut line = Line::new();
    let text = value.to_str().unwrap_or_default();
    for part in parts(text) {
        if !Member::of(part).is_some_and(|member| gone.contains(&member.name)) {
            separate(&mut line);
            line.push(part.as_bytes());
        }
    }
    if let Some(value) = structured::value(&line) {
        let _ = map.try_append(field, value);
    }
}

impl<'a> Member<'a> {
    fn of(part: &'a str) -> Option<Self> {
        let quoted = part.strip_prefix('"')?;
        let mut escaped = false;
        let end = quoted.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        Some(Self {
            name: &quoted[..end],
            parameters: &quoted[end + 1..],
        })
    }

    fn written(&self) -> InnerQuota {
        let number = |key: &str| {
            let mut parameters = self.parameters.split(';').map(str::trim);
            let number = parameters.find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
            number?.parse().ok()
        };
        InnerQuota {
            remaining: number("r"),
            reset: number("t"),
        }
    }
}

fn members(value: &HeaderValue) -> impl Iterator<Item = Member<'_>> {
    parts(value.to_str().unwrap_or_default()).filter_map(Member::of)
}

/// The members of a list, at the commas that are not in a quoted string.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = text.split(move |c| {
        let is_quote = c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
        quoted ^= is_quote;
        c == ',' && !quoted
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}
