//! What follows the units: `burst 20`, `buckets 12`, `typically 30s`, `until 2026-12-24T00:00Z`.

use std::ops::Range;

use crate::{
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    quota_text::{
        period::{instant, period},
        word::{ParseQuotaError, Word, units},
    },
};

/// The setting of an algorithm, and how its value is written.
fn setting_of(algorithm: AlgorithmKind) -> Option<(&'static str, &'static str)> {
    match algorithm {
        AlgorithmKind::SlidingBuckets => Some(("buckets", "20")),
        AlgorithmKind::Concurrent => Some(("typically", "30s")),
        AlgorithmKind::None => Some(("until", "2026-12-24T00:00Z")),
        _ => algorithm.is_bucket().then_some(("burst", "20")),
    }
}

/// The quota with the setting that these words have, if they do.
pub(super) fn with_setting(
    mut quota: Quota,
    words: &[Word<'_>],
    text: &str,
) -> Result<Quota, ParseQuotaError> {
    let algorithm = quota.algorithm();
    let known = setting_of(algorithm);
    for (index, pair) in words.chunks(2).enumerate() {
        let (name, span) = (&pair[0], pair[0].start..pair[pair.len() - 1].span().end);
        let Some((_, example)) = known.filter(|(known, _)| name.text == *known) else {
            return Err(unknown(name, algorithm, known, span));
        };
        let Some(value) = pair.get(1) else {
            let message = format!(
                "what follows {:?} is missing; write it as {example}",
                name.text
            );
            return Err(ParseQuotaError::new(text.len()..text.len(), message));
        };
        if index > 0 {
            let message = format!("{:?} is there twice; remove one", name.text);
            return Err(ParseQuotaError::new(span, message));
        }
        quota = match algorithm {
            AlgorithmKind::Concurrent => quota.typically(period(value)?),
            AlgorithmKind::None => quota.until(instant(value)?),
            AlgorithmKind::SlidingBuckets => {
                quota.buckets(u32::try_from(units(value)?).unwrap_or(u32::MAX))
            }
            _ => quota.burst(units(value)?),
        };
    }
    Ok(quota)
}

fn unknown(
    name: &Word<'_>,
    algorithm: AlgorithmKind,
    known: Option<(&str, &str)>,
    span: Range<usize>,
) -> ParseQuotaError {
    let message = match (name.text, known) {
        ("burst", _) => format!(
            "a burst does not apply to {algorithm}, whose limit is what may come at once; remove it, or take gcra"
        ),
        ("buckets", _) => format!(
            "sub-buckets do not apply to {algorithm}, which has none; remove them, or take sliding_buckets"
        ),
        ("capacity", Some(("burst", _))) => {
            "\"capacity\" is not a setting; did you mean \"burst\"?".into()
        }
        (_, None) => {
            let message = format!("is too much; {algorithm} has nothing after that");
            return ParseQuotaError::unknown(name, &message, []);
        }
        (_, Some((known, example))) => {
            let message = format!("is not a setting; {algorithm} takes \"{known} {example}\"");
            return ParseQuotaError::unknown(name, &message, [known]);
        }
    };
    ParseQuotaError::new(span, message)
}
