//! What follows the rate: `burst 20`, `buckets 12`.

use std::time::Duration;

use crate::{
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    quota_text::word::{Word, Wrong, units},
};

/// The sub-buckets of [`Quota::sliding_buckets`].
pub(super) const DEFAULT_BUCKETS: u32 = 60;

/// The settings after the rate.
#[derive(Default)]
pub(super) struct Settings<'a> {
    pub(super) burst: Option<(u64, Word<'a>)>,
    pub(super) buckets: Option<u32>,
}

pub(super) fn read_settings<'a>(
    words: &[Word<'a>],
    algorithm: AlgorithmKind,
    end: usize,
) -> Result<Settings<'a>, Wrong> {
    let mut settings = Settings::default();
    for pair in words.chunks(2) {
        let name = &pair[0];
        let has = |name: &str| match name {
            "burst" => is_bucket(algorithm),
            _ => algorithm == AlgorithmKind::SlidingBuckets,
        };
        match name.text {
            "burst" | "buckets" if !has(name.text) => {
                let message = match name.text {
                    "burst" => format!(
                        "a burst does not apply to {algorithm}, whose limit is what may come at once; remove it, or take gcra"
                    ),
                    _ => format!(
                        "sub-buckets do not apply to {algorithm}, which has none; remove them, or take sliding_buckets"
                    ),
                };
                let last = pair.last().unwrap_or(name);
                return Err(Wrong::new(name.start..last.span().end, message));
            }
            "burst" | "buckets" => {}
            "capacity" => {
                return Err(Wrong::new(
                    name.span(),
                    "\"capacity\" is not a setting; did you mean \"burst\"?",
                ));
            }
            _ => {
                let known = ["burst", "buckets"].into_iter().filter(|name| has(name));
                let list: Vec<_> = known.clone().map(|name| format!("\"{name} 20\"")).collect();
                let message = match &list[..] {
                    [] => format!("is too much; {algorithm} takes no setting after the period"),
                    list => format!("is not a setting; {algorithm} takes {}", list.join(", ")),
                };
                return Err(Wrong::unknown(name, &message, known));
            }
        }
        let Some(number) = pair.get(1) else {
            let message = format!("the number after {:?} is missing", name.text);
            return Err(Wrong::new(end..end, message));
        };
        let units = units(number)?;
        let is_second = if name.text == "burst" {
            settings.burst.replace((units, *number)).is_some()
        } else {
            let buckets = u32::try_from(units).unwrap_or(u32::MAX);
            settings.buckets.replace(buckets).is_some()
        };
        if is_second {
            let message = format!("{:?} is there twice; remove one", name.text);
            return Err(Wrong::new(name.start..number.span().end, message));
        }
    }
    Ok(settings)
}

/// The quota with these numbers. It is not yet validated.
pub(super) fn make(
    algorithm: AlgorithmKind,
    limit: u64,
    period: Duration,
    settings: &Settings<'_>,
) -> Quota {
    let burst = settings.burst.map_or(limit, |(burst, _)| burst);
    match algorithm {
        AlgorithmKind::TokenBucket => Quota::token_bucket(burst).refill(limit, period),
        AlgorithmKind::LeakyBucket => Quota::leaky_bucket(burst).leak(limit, period),
        AlgorithmKind::Gcra => Quota::gcra(limit, period).burst(burst),
        AlgorithmKind::FixedWindow => Quota::fixed_window(limit, period),
        AlgorithmKind::SlidingWindow => Quota::sliding_window(limit, period),
        AlgorithmKind::SlidingBuckets => {
            let buckets = settings.buckets.unwrap_or(DEFAULT_BUCKETS);
            Quota::sliding_buckets(limit, period).buckets(buckets)
        }
        AlgorithmKind::SlidingLog => Quota::sliding_log(limit, period),
        AlgorithmKind::Concurrent => Quota::concurrent(limit),
        AlgorithmKind::Unlimited => Quota::unlimited(),
        AlgorithmKind::None => Quota::none(),
    }
}

/// Whether a burst may differ from the units of a period.
pub(super) fn is_bucket(algorithm: AlgorithmKind) -> bool {
    matches!(
        algorithm,
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket
    )
}
