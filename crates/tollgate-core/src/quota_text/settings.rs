//! What follows the rate: `burst 20`, `buckets 12`.

use std::time::Duration;

use crate::{
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    quota_text::word::{Word, Wrong, units},
};

/// The sub-buckets of [`Quota::sliding_buckets`].
pub(super) const DEFAULT_BUCKETS: u32 = 60;

/// The number after the rate, with its word: the burst of a bucket, or how many sub-buckets there are.
pub(super) type Setting<'a> = Option<(u64, Word<'a>)>;

pub(super) fn read_setting<'a>(
    words: &[Word<'a>],
    algorithm: AlgorithmKind,
    end: usize,
) -> Result<Setting<'a>, Wrong> {
    let known = match algorithm {
        AlgorithmKind::SlidingBuckets => Some("buckets"),
        _ => algorithm.is_bucket().then_some("burst"),
    };
    let mut setting = None;
    for pair in words.chunks(2) {
        let (name, last) = (&pair[0], &pair[pair.len() - 1]);
        let wrong = match (name.text, known) {
            (text, Some(known)) if text == known => None,
            ("burst", _) => Some(format!(
                "a burst does not apply to {algorithm}, whose limit is what may come at once; remove it, or take gcra"
            )),
            ("buckets", _) => Some(format!(
                "sub-buckets do not apply to {algorithm}, which has none; remove them, or take sliding_buckets"
            )),
            ("capacity", _) => {
                let message = "\"capacity\" is not a setting; did you mean \"burst\"?";
                return Err(Wrong::new(name.span(), message));
            }
            _ => {
                let message = match known {
                    None => format!("is too much; {algorithm} takes no setting after the period"),
                    Some(known) => format!("is not a setting; {algorithm} takes \"{known} 20\""),
                };
                return Err(Wrong::unknown(name, &message, known));
            }
        };
        if let Some(message) = wrong {
            return Err(Wrong::new(name.start..last.span().end, message));
        }
        let Some(number) = pair.get(1) else {
            let message = format!("the number after {:?} is missing", name.text);
            return Err(Wrong::new(end..end, message));
        };
        if setting.replace((units(number)?, *number)).is_some() {
            let message = format!("{:?} is there twice; remove one", name.text);
            return Err(Wrong::new(name.start..number.span().end, message));
        }
    }
    Ok(setting)
}

/// The quota of an algorithm with a rate, and the number of its setting.
pub(super) fn make(
    algorithm: AlgorithmKind,
    limit: u64,
    period: Duration,
    setting: Option<u64>,
) -> Quota {
    let burst = setting.unwrap_or(limit);
    match algorithm {
        AlgorithmKind::TokenBucket => Quota::token_bucket(burst).refill(limit, period),
        AlgorithmKind::LeakyBucket => Quota::leaky_bucket(burst).leak(limit, period),
        AlgorithmKind::Gcra => Quota::gcra(limit, period).burst(burst),
        AlgorithmKind::FixedWindow => Quota::fixed_window(limit, period),
        AlgorithmKind::SlidingWindow => Quota::sliding_window(limit, period),
        AlgorithmKind::SlidingBuckets => {
            let buckets = setting.unwrap_or(DEFAULT_BUCKETS.into());
            let buckets = u32::try_from(buckets).unwrap_or(u32::MAX);
            Quota::sliding_buckets(limit, period).buckets(buckets)
        }
        AlgorithmKind::SlidingLog => Quota::sliding_log(limit, period),
        AlgorithmKind::Concurrent => Quota::concurrent(limit),
        AlgorithmKind::Unlimited => Quota::unlimited(),
        AlgorithmKind::None => Quota::none(),
    }
}
