//! The id of a request: what makes another one its repeat.

use tollgate_core::{Check, KeyBuf, Limiter, PartKind};

use crate::{head::Head, key::Extracted, routes::whole_path, rule::RequestSettings};

/// The longest part of an id, in bytes: a longer one is none.
const LONGEST: usize = 255;

/// Gives the last check the id of its request, if the rule takes ids and the request has one: what the extractor finds, the method, and
/// the target with its query.
pub(super) fn identify(
    limiter: &Limiter,
    rule: &RequestSettings,
    head: &Head<'_>,
    checks: &mut [Check],
) {
    let (Some(extractor), Some(check)) = (&rule.id, checks.last_mut()) else {
        return;
    };
    let mut id = KeyBuf::new();
    let is_there = matches!(extractor.extract(head, &mut id), Extracted::Key);
    if !is_there || id.parts().any(|(_, part)| part.len() > LONGEST) {
        return;
    }
    id.push(PartKind::METHOD, head.method.as_str());
    id.push(PartKind::PATH, whole_path(head).as_bytes());
    id.push(
        PartKind::QUERY_PARAMETER,
        head.uri.query().unwrap_or_default(),
    );
    // A rule with an extractor of ids is idempotent.
    *check = limiter.with_id(*check, &id.into()).unwrap_or(*check);
}
