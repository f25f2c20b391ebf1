//! From a text to a quota.

use std::{ops::Range, str::FromStr, time::Duration};

#[cfg(feature = "calendar")]
use crate::quota_text::calendar;
use crate::{
    algorithm_kind::AlgorithmKind,
    quota::{MAX_PERIOD, Quota, lowest_terms},
    quota_text::{
        period::{PeriodText, instant, period},
        word::{ParseQuotaError, Word, units, words},
    },
};

/// What is right, for errors about the whole.
const EXAMPLE: &str = "write it as \"100/min\", \"gcra 100/min burst 20\" or \"unlimited\"";

/// `[algorithm] n/period [burst n]`, `concurrent n [typically period]`, `unlimited`, or `none [until time]`. Default: `gcra`, with a burst of `n`.
///
/// - The algorithm is named as by [`AlgorithmKind::name`].
/// - The period is a unit of time (`us`, `ms`, `s`, `min`, `h`, `d`, `w`, or its name) or several of them: `30s`, `1h30min`.
/// - `burst` is that of `gcra`, and the capacity of `token_bucket` and `leaky_bucket`.
/// - `sliding_buckets` takes `buckets n` as well. Default: 60.
/// - `typically` is how long a slot of `concurrent` is usually held.
/// - `none` is also `0/min`. It ends at a time in UTC: `none until 2026-12-24T00:00Z`.
/// - Digits of a number may be grouped: `1_000_000/day`.
/// - With the feature `calendar`: `100/month`, `100/year`, and `calendar 100/day`, with a time zone and the day on which windows begin:
///   `100/month Europe/Zurich from 15`, `100/week from sunday`.
///
/// The quota is [validated](Quota::validate).
///
/// ```
/// use tollgate_core::{MINUTE, Quota, SECOND};
///
/// assert_eq!("100/min".parse(), Ok(Quota::gcra(100, MINUTE)));
/// assert_eq!("gcra 100/min burst 20".parse(), Ok(Quota::gcra(100, MINUTE).burst(20)));
/// assert_eq!("token_bucket 10/30s burst 50".parse(), Ok(Quota::token_bucket(50).refill(10, 30 * SECOND)));
///
/// let error = "slidng_window 100/min".parse::<Quota>().unwrap_err();
/// assert_eq!(error.span(), 0..13);
/// assert!(error.to_string().ends_with("did you mean \"sliding_window\"?"), "{error}");
/// ```
///
/// # Errors
///
/// [`ParseQuotaError`] has the wrong part and says what would be right.
impl FromStr for Quota {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, ParseQuotaError> {
        parse(text, None).map_err(|wrong| wrong.in_text(text))
    }
}

impl Quota {
    /// The same of a quota beside this one, as a plan is beside a rule's own: where the text names none, it has the algorithm of this one,
    /// or the calendar with its zone and first day, and as many sub-buckets.
    ///
    /// ```
    /// use tollgate_core::{DAY, Quota};
    ///
    /// let own = Quota::sliding_buckets(100, DAY).buckets(24);
    /// assert_eq!(own.parse_beside("500/d"), Ok(Quota::sliding_buckets(500, DAY).buckets(24)));
    /// assert_eq!(own.parse_beside("gcra 500/d"), Ok(Quota::gcra(500, DAY)));
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseQuotaError`] has the wrong part and says what would be right.
    pub fn parse_beside(&self, text: &str) -> Result<Self, ParseQuotaError> {
        parse(text, Some(self)).map_err(|wrong| wrong.in_text(text))
    }
}

fn parse(text: &str, own: Option<&Quota>) -> Result<Quota, ParseQuotaError> {
    let (words, own) = (words(text), own.filter(|own| own.has_state()));
    let is_name = |word: &Word<'_>| {
        let mut letters = word.text.chars();
        letters
            .next()
            .is_some_and(|c| c.is_alphabetic() || c == '_')
    };
    #[cfg(feature = "calendar")]
    let of_own = own.and_then(Quota::calendar_of);
    #[cfg(feature = "calendar")]
    match &words[..] {
        [first, rest @ ..] if first.text == "calendar" => {
            return calendar::calendar(rest, text, None);
        }
        [rate, settings @ ..]
            if calendar::is_calendar(rate, settings) || of_own.is_some() && !is_name(rate) =>
        {
            return calendar::calendar(&words, text, of_own);
        }
        _ => {}
    }
    let (algorithm, rest) = match words.split_first() {
        None => {
            return Err(ParseQuotaError::new(
                0..text.len(),
                format!("it is empty; {EXAMPLE}"),
            ));
        }
        Some((first, rest)) if is_name(first) => (algorithm(first)?, rest),
        Some(_) => (
            own.map_or(AlgorithmKind::Gcra, Quota::algorithm),
            &words[..],
        ),
    };
    match algorithm {
        AlgorithmKind::Unlimited => return with_setting(Quota::unlimited(), rest, text),
        AlgorithmKind::None => return with_setting(Quota::none(), rest, text),
        _ => {}
    }
    let Some((head, settings)) = rest.split_first() else {
        let example = match algorithm {
            AlgorithmKind::Concurrent => "3",
            _ => "100/min",
        };
        let message = format!("its numbers are missing; write \"{algorithm} {example}\"");
        return Err(ParseQuotaError::missing(text, message));
    };
    let bare = match algorithm {
        AlgorithmKind::Concurrent => Quota::concurrent(slots(head)?),
        _ => match units_per_period(head, settings)? {
            (0, _) if settings.is_empty() => return Ok(Quota::none()),
            (limit, period) => {
                let buckets = own.map_or(0, Quota::bucket_count);
                let quota = Quota::new(algorithm, limit, period);
                match algorithm == AlgorithmKind::SlidingBuckets && buckets > 0 {
                    true => quota.buckets(buckets),
                    false => quota,
                }
            }
        },
    };
    let quota = with_setting(bare, settings, text)?;
    quota.validate().map_err(|error| {
        let end = match bare.validate() {
            Ok(()) => text.trim_end().len(),
            Err(_) => head.span().end,
        };
        ParseQuotaError::new(head.start..end, error.to_string())
    })?;
    Ok(quota)
}

/// The number of `concurrent 3`.
fn slots(word: &Word<'_>) -> Result<u64, ParseQuotaError> {
    let Some(slash) = word.text.find('/') else {
        return units(word);
    };
    let (number, period) = word.split_at(slash);
    let message = format!(
        "slots are held and have no period; write \"concurrent {}\", or take gcra",
        number.text.trim()
    );
    Err(period.wrong(message))
}

fn algorithm(word: &Word<'_>) -> Result<AlgorithmKind, ParseQuotaError> {
    let mut all = AlgorithmKind::ALL.into_iter();
    if let Some((algorithm, _)) = all.find(|(_, name)| *name == word.text) {
        return Ok(algorithm);
    }
    let calendar = cfg!(feature = "calendar").then_some("calendar");
    let names = AlgorithmKind::ALL.into_iter().map(|(_, name)| name);
    let names: Vec<_> = names.chain(calendar).collect();
    let message = format!("is not an algorithm; there are {}", names.join(", "));
    Err(ParseQuotaError::unknown(word, &message, names))
}

/// The units and the period of `100/min`.
fn units_per_period(
    word: &Word<'_>,
    next: &[Word<'_>],
) -> Result<(u64, Duration), ParseQuotaError> {
    let Some((number, period)) = word.halves() else {
        let period = match next {
            // 100 per minute, 1 000/h
            [per, period, ..] if matches!(per.text, "per" | "a" | "each" | "every") => {
                Some(format!("{}/{}", word.text, period.text))
            }
            [more, ..] if more.text.starts_with(|c: char| c.is_ascii_digit()) => {
                Some(format!("{}{}", word.text, more.text))
            }
            _ => None,
        };
        let end = next.first().map_or(word.span().end, |next| next.span().end);
        return Err(match period {
            Some(meant) if units(word).is_ok() => ParseQuotaError::new(
                word.start..end,
                format!("units and period are one word; did you mean {meant:?}?"),
            ),
            _ => word.quoted_wrong("has no period; write units and period as \"100/min\""),
        });
    };
    let units = units(&number).map_err(|wrong| match whole_rate(number.text, &period) {
        None => wrong,
        Some(meant) => number.quoted_wrong(&format!(
            "is not a number of units; write a whole number in a longer time, as \"{meant}\""
        )),
    })?;
    Ok((units, self::period(&period)?))
}

/// A rate with a fraction in whole units: `17/100s` for `0.17/s`.
fn whole_rate(number: &str, period: &Word<'_>) -> Option<String> {
    let (whole, fraction) = number.split_once('.')?;
    let digits = format!("{whole}{fraction}");
    let numerator: u64 = digits.parse().ok().filter(|units| *units > 0)?;
    let denominator = 10_u64.checked_pow(fraction.len().try_into().ok()?)?;
    let (units, periods) = lowest_terms(numerator, denominator);
    let time = self::period(period)
        .ok()?
        .checked_mul(periods.try_into().ok()?)?;
    (time <= MAX_PERIOD).then(|| format!("{units}/{}", PeriodText(time)))
}

// What follows the units: `burst 20`, `buckets 12`, `typically 30s`, `until 2026-12-24T00:00Z`.

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
fn with_setting(
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
            return Err(ParseQuotaError::missing(text, message));
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
            return name.quoted_wrong(&message);
        }
        (_, Some((known, example))) => {
            let message = format!("is not a setting; {algorithm} takes \"{known} {example}\"");
            return ParseQuotaError::unknown(name, &message, [known]);
        }
    };
    ParseQuotaError::new(span, message)
}
