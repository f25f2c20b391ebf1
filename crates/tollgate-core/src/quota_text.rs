//! Quotas as text: `gcra 100/min burst 20`.
//!
//! ```text
//! quota     = "unlimited" | "concurrent" slots ["typically" period] | [algorithm] units "/" period ["burst" units] ["buckets" number]
//! algorithm = "gcra" | "token_bucket" | "leaky_bucket" | "fixed_window" | "sliding_window" | "sliding_buckets" | "sliding_log"
//! period    = unit | (number unit)+                        10s, 1h30min, day
//! unit      = "us" | "ms" | "s" | "min" | "h" | "d" | "w", and their names
//! ```

use std::{error::Error, fmt, ops::Range, str::FromStr, time::Duration};

use crate::{
    algorithm_kind::AlgorithmKind,
    did_you_mean::did_you_mean,
    quota::{MAX_PERIOD, MAX_UNITS, Quota},
};

/// Every algorithm that a quota of text can have with a rate.
const ALGORITHMS: [AlgorithmKind; 7] = [
    AlgorithmKind::Gcra,
    AlgorithmKind::TokenBucket,
    AlgorithmKind::LeakyBucket,
    AlgorithmKind::FixedWindow,
    AlgorithmKind::SlidingWindow,
    AlgorithmKind::SlidingBuckets,
    AlgorithmKind::SlidingLog,
];

/// The units of time with the names they have; the first is the one that is printed. From long to short.
const UNITS: [(&[&str], u64); 7] = [
    (&["w", "week", "weeks"], 604_800_000_000),
    (&["d", "day", "days"], 86_400_000_000),
    (&["h", "hour", "hours", "hr"], 3_600_000_000),
    (&["min", "minute", "minutes", "m", "mins"], 60_000_000),
    (&["s", "second", "seconds", "sec", "secs"], 1_000_000),
    (&["ms", "millisecond", "milliseconds"], 1_000),
    (&["us", "µs", "μs", "microsecond", "microseconds"], 1),
];

/// What is right, for errors about the whole.
const EXAMPLE: &str = "write it as \"100/min\", \"gcra 100/min burst 20\" or \"unlimited\"";

/// A text that is no quota: which part of it is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseQuotaError {
    text: String,
    span: Range<usize>,
    message: String,
}

impl ParseQuotaError {
    /// The wrong part, as bytes of the text. It is empty, at the end, where something is missing.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What is wrong and what would be right, without the text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may come from anywhere, and be of any length.
        match self.text.char_indices().nth(80) {
            None => write!(f, "quota {:?}: {}", self.text, self.message),
            Some((end, _)) => write!(f, "quota {:?}…: {}", &self.text[..end], self.message),
        }
    }
}

/// As it is displayed: it comes out of `main`.
impl fmt::Debug for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ParseQuotaError {}

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
/// ```
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm().name())?;
        match self.algorithm() {
            AlgorithmKind::Unlimited => return Ok(()),
            AlgorithmKind::Concurrent => {
                write!(f, " {}", self.limit())?;
                return match self.typical_hold_time() {
                    Some(typical) => write!(f, " typically {}", PeriodText(typical)),
                    None => Ok(()),
                };
            }
            _ => {}
        }
        write!(f, " {}/{}", self.rate(), PeriodText(self.period()))?;
        if is_bucket(self.algorithm()) && self.limit() != self.rate() {
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

/// The sub-buckets of [`Quota::sliding_buckets`].
const DEFAULT_BUCKETS: u32 = 60;

/// `[algorithm] n/period [burst n]`, `concurrent n [typically period]`, or `unlimited`. Default: `gcra`, with a burst of `n`.
///
/// - The algorithm is named as by [`AlgorithmKind::name`].
/// - The period is a unit of time (`us`, `ms`, `s`, `min`, `h`, `d`, `w`, or its name) or several of them: `30s`, `1h30min`.
/// - `burst` is that of `gcra`, and the capacity of `token_bucket` and `leaky_bucket`.
/// - `sliding_buckets` takes `buckets n` as well. Default: 60.
/// - `typically` is how long a slot of `concurrent` is usually held.
/// - Digits of a number may be grouped: `1_000_000/day`.
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
        parse(text).map_err(|Wrong { span, message }| ParseQuotaError {
            text: text.to_owned(),
            span,
            message,
        })
    }
}

/// The wrong part, and what would be right.
struct Wrong {
    span: Range<usize>,
    message: String,
}

impl Wrong {
    fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
        }
    }

    /// An unknown word, with the known one that it resembles.
    fn unknown<'a>(
        word: &Word<'_>,
        message: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut message = format!("{} {message}", word.quoted());
        if let Some(meant) = did_you_mean(word.text, known) {
            message.push_str(&format!("; did you mean {meant:?}?"));
        }
        Self::new(word.span(), message)
    }
}

/// A part of the text, and where it begins.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Word<'a> {
    fn span(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// For a message: at most 40 characters of it.
    fn quoted(&self) -> String {
        match self.text.char_indices().nth(40) {
            None => format!("{:?}", self.text),
            Some((end, _)) => format!("{:?}…", &self.text[..end]),
        }
    }

    fn split_at(&self, at: usize) -> (Self, Self) {
        let (before, after) = self.text.split_at(at);
        let start = self.start + at;
        let after = Word { text: after, start };
        let before = Word {
            text: before,
            ..*self
        };
        (before, after)
    }
}

/// The words of a text. A `/` belongs to the word around it: `100 / min` is one.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    for part in text.split_whitespace() {
        // Both are slices of one text.
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        match words.last_mut() {
            Some(last) if last.text.ends_with('/') || part.starts_with('/') => {
                last.text = &text[last.start..start + part.len()];
            }
            _ => words.push(Word { text: part, start }),
        }
    }
    words
}

fn parse(text: &str) -> Result<Quota, Wrong> {
    let words = words(text);
    let (algorithm, rest) = match words.split_first() {
        None => return Err(Wrong::new(0..text.len(), format!("it is empty; {EXAMPLE}"))),
        Some((first, rest))
            if first
                .text
                .starts_with(|c: char| c.is_alphabetic() || c == '_') =>
        {
            (algorithm(first)?, rest)
        }
        Some(_) => (AlgorithmKind::Gcra, &words[..]),
    };
    if algorithm == AlgorithmKind::Unlimited {
        return match rest.first() {
            None => Ok(Quota::unlimited()),
            Some(more) => Err(Wrong::new(
                more.start..text.trim_end().len(),
                "unlimited has no numbers; remove them, or take another algorithm",
            )),
        };
    }
    if algorithm == AlgorithmKind::Concurrent {
        return concurrent(rest, text);
    }
    let Some((rate, settings)) = rest.split_first() else {
        let message =
            format!("the units and the period are missing; write \"{algorithm} 100/min\"");
        return Err(Wrong::new(text.len()..text.len(), message));
    };
    let (limit, period) = units_per_period(rate, settings)?;
    let settings = self::settings(settings, algorithm, text.len())?;
    let quota = make(algorithm, limit, period, &settings);
    quota.validate().map_err(|error| {
        // Which of the numbers it is about is known for those that are wrong alone.
        let span = match settings.burst {
            _ if limit == 0 || period.is_zero() => rate.span(),
            Some((0, word)) => word.span(),
            _ => rate.start..text.trim_end().len(),
        };
        Wrong::new(span, error.to_string())
    })?;
    Ok(quota)
}

/// `3`, or `3 typically 30s`: the words after `concurrent`.
fn concurrent(words: &[Word<'_>], text: &str) -> Result<Quota, Wrong> {
    let end = text.trim_end().len();
    let Some((slots, settings)) = words.split_first() else {
        let message = "the number of slots is missing; write \"concurrent 3\"";
        return Err(Wrong::new(text.len()..text.len(), message));
    };
    if let Some(slash) = slots.text.find('/') {
        let (number, period) = slots.split_at(slash);
        let message = format!(
            "slots are held and have no period; write \"concurrent {}\", or take gcra",
            number.text.trim()
        );
        return Err(Wrong::new(period.span(), message));
    }
    let mut quota = Quota::concurrent(units(slots)?);
    match settings {
        [] => {}
        [name, time] if name.text == "typically" => quota = quota.typically(period(time)?),
        [name] if name.text == "typically" => {
            let message = "the time after \"typically\" is missing; write it as 30s";
            return Err(Wrong::new(text.len()..text.len(), message));
        }
        [_, _, more, ..] if settings[0].text == "typically" => {
            let message = "is too much; concurrent takes \"typically 30s\" and nothing else";
            return Err(Wrong::unknown(more, message, []));
        }
        [name, ..] => {
            let message = "is not a setting; concurrent takes \"typically 30s\"";
            return Err(Wrong::unknown(name, message, ["typically"]));
        }
    }
    quota
        .validate()
        .map_err(|error| Wrong::new(slots.start..end, error.to_string()))?;
    Ok(quota)
}

fn algorithm(word: &Word<'_>) -> Result<AlgorithmKind, Wrong> {
    let without_rate = [AlgorithmKind::Concurrent, AlgorithmKind::Unlimited];
    let all = || ALGORITHMS.into_iter().chain(without_rate);
    if let Some(algorithm) = all().find(|algorithm| algorithm.name() == word.text) {
        return Ok(algorithm);
    }
    let names: Vec<&str> = all().map(AlgorithmKind::name).collect();
    let message = format!("is not an algorithm; there are {}", names.join(", "));
    Err(Wrong::unknown(word, &message, names))
}

/// The units and the period of `100/min`.
fn units_per_period(word: &Word<'_>, next: &[Word<'_>]) -> Result<(u64, Duration), Wrong> {
    let Some(slash) = word.text.find('/') else {
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
            Some(meant) if units(word).is_ok() => Wrong::new(
                word.start..end,
                format!("units and period are one word; did you mean {meant:?}?"),
            ),
            _ => Wrong::new(
                word.span(),
                format!(
                    "{} has no period; write units and period as \"100/min\"",
                    word.quoted()
                ),
            ),
        });
    };
    let (number, period) = word.split_at(slash);
    let number = number.trimmed();
    let period = period.split_at(1).1.trimmed();
    Ok((units(&number)?, self::period(&period)?))
}

impl Word<'_> {
    /// Without white space around it.
    fn trimmed(&self) -> Self {
        let text = self.text.trim_start();
        let start = self.start + (self.text.len() - text.len());
        let text = text.trim_end();
        Word { text, start }
    }
}

/// A number of units: digits, which may be grouped by `_`.
fn units(word: &Word<'_>) -> Result<u64, Wrong> {
    let digits: String = word.text.chars().filter(|c| *c != '_').collect();
    if digits.is_empty()
        || word.text.starts_with('_')
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        let message = match word.text {
            "" => "the number of units is missing; write it as 100".to_owned(),
            _ => format!(
                "{} is not a number of units; write a whole number as 100 or 1_000",
                word.quoted()
            ),
        };
        return Err(Wrong::new(word.span(), message));
    }
    match digits.parse() {
        Ok(units) if units <= MAX_UNITS => Ok(units),
        _ => Err(Wrong::new(
            word.span(),
            format!(
                "{} units are above {MAX_UNITS}; count in larger units",
                word.quoted()
            ),
        )),
    }
}

/// A unit of time, or several: `min`, `10s`, `1h30min`.
fn period(word: &Word<'_>) -> Result<Duration, Wrong> {
    if word.text.is_empty() {
        let message = "the period is missing; write it as s, min, h, d, or several as 10s";
        return Err(Wrong::new(word.span(), message));
    }
    let mut rest = *word;
    let mut micros: u64 = 0;
    while !rest.text.is_empty() {
        let digits = rest.text.find(|c: char| !c.is_ascii_digit() && c != '_');
        let (count, unit) = rest.split_at(digits.unwrap_or(rest.text.len()));
        let letters = unit.text.find(|c: char| c.is_ascii_digit());
        let (unit, next) = unit.split_at(letters.unwrap_or(unit.text.len()));
        let is_only_a_unit = count.text.is_empty() && rest.start == word.start;
        let count = if is_only_a_unit && next.text.is_empty() {
            1
        } else {
            units(&count).map_err(|wrong| match count.text {
                "" => not_a_period(word, &rest),
                _ => wrong,
            })?
        };
        let length = unit_of_time(&unit).ok_or_else(|| not_a_period(word, &unit))?;
        let sum = count
            .checked_mul(length)
            .and_then(|n| n.checked_add(micros));
        micros = match sum {
            Some(sum) if Duration::from_micros(sum) <= MAX_PERIOD => sum,
            _ => {
                let message = format!("a period of {} is above ten years", word.quoted());
                return Err(Wrong::new(word.span(), message));
            }
        };
        rest = next;
    }
    Ok(Duration::from_micros(micros))
}

fn unit_of_time(word: &Word<'_>) -> Option<u64> {
    let unit = UNITS.iter().find(|(names, _)| names.contains(&word.text));
    unit.map(|(_, micros)| *micros)
}

fn not_a_period(period: &Word<'_>, unit: &Word<'_>) -> Wrong {
    if ["mo", "month", "months", "y", "year", "years"].contains(&unit.text) {
        let message = format!(
            "{} is not a period, because its length differs; write a number of days, as 30d",
            period.quoted()
        );
        return Wrong::new(period.span(), message);
    }
    if unit.text.is_empty() {
        let message = format!(
            "{} has no unit of time; did you mean \"{}s\"?",
            period.quoted(),
            period.text
        );
        return Wrong::new(period.span(), message);
    }
    let names = UNITS.iter().flat_map(|(names, _)| names.iter().copied());
    Wrong::unknown(
        unit,
        "is not a unit of time; write s, min, h, d, or several as 10s",
        names,
    )
}

/// The settings after the rate.
#[derive(Default)]
struct Settings<'a> {
    burst: Option<(u64, Word<'a>)>,
    buckets: Option<u32>,
}

fn settings<'a>(
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

fn make(algorithm: AlgorithmKind, limit: u64, period: Duration, settings: &Settings<'_>) -> Quota {
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
    }
}

fn is_bucket(algorithm: AlgorithmKind) -> bool {
    matches!(
        algorithm,
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket
    )
}

/// A period in the largest unit that divides it; weeks are said in days.
struct PeriodText(Duration);

impl fmt::Display for PeriodText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let mut units = UNITS.iter().skip(1);
        let unit = units.find(|(_, length)| micros.is_multiple_of(u128::from(*length)));
        // A microsecond divides all.
        let Some((names, length)) = unit else {
            return Ok(());
        };
        match micros / u128::from(*length) {
            1 => f.write_str(names[0]),
            count => write!(f, "{count}{}", names[0]),
        }
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use std::fmt;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use crate::quota::Quota;

    /// As its text.
    impl Serialize for Quota {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    /// From its text.
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
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::{DAY, HOUR, MINUTE, SECOND};

    #[test]
    fn a_quota_is_read_in_its_usual_spellings() {
        let sliding = Quota::sliding_window(1_000, MINUTE);
        for (text, quota) in [
            ("100/min", Quota::gcra(100, MINUTE)),
            ("100/m", Quota::gcra(100, MINUTE)),
            ("  100 / minute  ", Quota::gcra(100, MINUTE)),
            ("100/ 1min", Quota::gcra(100, MINUTE)),
            ("20/s burst 50", Quota::gcra(20, SECOND).burst(50)),
            ("gcra 1_000_000/day", Quota::gcra(1_000_000, DAY)),
            ("gcra 1/w", Quota::gcra(1, 7 * DAY)),
            ("sliding_window 1000/1m", sliding),
            ("sliding_window 1000/60s", sliding),
            ("sliding_log 5/1h30min", Quota::sliding_log(5, 90 * MINUTE)),
            (
                "fixed_window 5/250ms",
                Quota::fixed_window(5, Duration::from_millis(250)),
            ),
            ("7/µs", Quota::gcra(7, Duration::from_micros(1))),
            (
                "sliding_buckets 9/h buckets 12",
                Quota::sliding_buckets(9, HOUR).buckets(12),
            ),
            (
                "leaky_bucket 10/s burst 4",
                Quota::leaky_bucket(4).leak(10, SECOND),
            ),
            (
                "token_bucket 10/s",
                Quota::token_bucket(10).refill(10, SECOND),
            ),
            ("unlimited", Quota::unlimited()),
        ] {
            assert_eq!(text.parse(), Ok(quota), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_quota_has_its_wrong_part_and_what_would_be_right() {
        // The text, the part that is marked, and words of the message.
        for (text, wrong, words) in [
            ("", "", &["empty", "100/min"] as &[&str]),
            ("gcra", "", &["missing", "gcra 100/min"]),
            (
                "gcar 100/min",
                "gcar",
                &["not an algorithm", "did you mean \"gcra\"?"],
            ),
            ("leaky 5/s", "leaky", &["not an algorithm", "leaky_bucket"]),
            ("100", "100", &["no period", "100/min"]),
            (
                "100 per minute",
                "100 per",
                &["did you mean \"100/minute\"?"],
            ),
            ("1 000/h", "1 000/h", &["did you mean \"1000/h\"?"]),
            ("100/", "", &["period is missing"]),
            ("/min", "", &["number of units is missing"]),
            ("1.5/s", "1.5", &["not a number of units", "whole number"]),
            ("-1/s", "-1", &["not a number of units"]),
            (
                "100/mni",
                "mni",
                &["not a unit of time", "did you mean \"min\"?"],
            ),
            (
                "100/60",
                "60",
                &["no unit of time", "did you mean \"60s\"?"],
            ),
            ("100/month", "month", &["its length differs", "30d"]),
            ("100/1h30", "1h30", &["no unit of time"]),
            ("100/h30min", "h30min", &["not a unit of time"]),
            ("100/20y", "20y", &["length differs"]),
            ("100/4000d", "4000d", &["above ten years"]),
            (
                "100/99999999999999999999s",
                "99999999999999999999",
                &["above"],
            ),
            ("0/s", "0/s", &["limit of 0", "at least 1"]),
            ("5/0s", "5/0s", &["holds no time"]),
            ("5/s burst 0", "0", &["burst of 0", "at least 1"]),
            (
                "5/s brust 9",
                "brust",
                &["not a setting", "did you mean \"burst\"?"],
            ),
            ("5/s burst", "", &["after \"burst\" is missing"]),
            ("5/s burst nine", "nine", &["not a number of units"]),
            ("5/s burst 6 burst 7", "burst 7", &["twice"]),
            ("5/s 10", "10", &["not a setting", "burst 20"]),
            (
                "token_bucket 5/s capacity 9",
                "capacity",
                &["did you mean \"burst\"?"],
            ),
            (
                "fixed_window 5/s burst 9",
                "burst 9",
                &["does not apply to fixed_window", "gcra"],
            ),
            (
                "gcra 5/s buckets 9",
                "buckets 9",
                &["do not apply to gcra", "sliding_buckets"],
            ),
            ("sliding_log 5/s hard", "hard", &["too much", "no setting"]),
            (
                "sliding_log 70000/h",
                "70000/h",
                &["70000", "sliding_buckets"],
            ),
            (
                "sliding_buckets 5/h buckets 601",
                "5/h buckets 601",
                &["601", "2 and 600"],
            ),
            ("unlimited 5/s", "5/s", &["no numbers"]),
        ] {
            let error = text.parse::<Quota>().expect_err(text);
            assert_eq!(&text[error.span()], wrong, "{text}: {error}");
            assert!(error.to_string().starts_with(&format!("quota {text:?}: ")));
            for word in words {
                assert!(error.message().contains(word), "{error} lacks {word}");
            }
        }
    }

    #[test]
    fn an_error_about_a_long_text_is_short() {
        let error = "é".repeat(100_000).parse::<Quota>().expect_err("no quota");
        assert!(error.to_string().len() < 600, "{}", error.to_string().len());
        assert!(error.span().len() > 100_000);
    }

    fn periods() -> impl Strategy<Value = Duration> {
        let lengths = UNITS.map(|(_, micros)| micros);
        prop_oneof![
            (1_u64..100, proptest::sample::select(lengths.to_vec()))
                .prop_map(|(count, length)| Duration::from_micros(count * length)),
            (1_u64..u64::try_from(MAX_PERIOD.as_micros()).expect("ten years"))
                .prop_map(Duration::from_micros),
        ]
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(
            algorithm in proptest::sample::select(ALGORITHMS.to_vec()),
            limit in prop_oneof![1_u64..1_000, 1..=MAX_UNITS],
            period in periods(),
            burst in proptest::option::of(prop_oneof![1_u64..1_000, 1..=MAX_UNITS]),
            buckets in proptest::option::of(2_u32..=600),
        ) {
            let word = Word { text: "", start: 0 };
            let burst = burst.filter(|_| is_bucket(algorithm)).map(|burst| (burst, word));
            let quota = make(algorithm, limit, period, &Settings { burst, buckets });
            if quota.validate().is_ok() {
                prop_assert_eq!(quota.to_string().parse(), Ok(quota), "{}", quota);
            } else {
                prop_assert!(quota.to_string().parse::<Quota>().is_err(), "{}", quota);
            }
        }

        #[test]
        fn any_text_is_a_quota_or_an_error_about_a_part_of_it(text in "\\PC{0,40}|[gcra_bukets0-9/minhd \\t]{0,30}") {
            match text.parse::<Quota>() {
                Ok(quota) => prop_assert_eq!(quota.to_string().parse(), Ok(quota)),
                Err(error) => {
                    prop_assert!(text.get(error.span()).is_some(), "{}", error);
                    prop_assert!(!error.message().is_empty());
                }
            }
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_quota_is_its_text_in_documents() {
        let quota = Quota::gcra(100, MINUTE).burst(20);
        let text = serde_json::to_string(&quota).expect("text");
        assert_eq!(text, "\"gcra 100/min burst 20\"");
        assert_eq!(
            serde_json::from_str::<Quota>(&text).expect("a quota"),
            quota
        );
        let error = serde_json::from_str::<Quota>("\"100/mni\"").expect_err("no quota");
        assert!(
            error.to_string().contains("did you mean \"min\"?"),
            "{error}"
        );
        let error = serde_json::from_str::<Quota>("100").expect_err("no quota");
        assert!(
            error.to_string().contains("gcra 100/min burst 20"),
            "{error}"
        );
    }
}
