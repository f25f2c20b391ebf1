//! Quotas: an algorithm with its numbers.

use std::{
    num::NonZeroU64,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

#[cfg(feature = "calendar")]
use crate::calendar::{Calendar, CalendarUnit, Weekday};
use crate::{
    algorithm_kind::AlgorithmKind,
    error::{RuleError, RuleErrorKind},
    time::{HOUR, MINUTE, SECOND, Tick, micros},
};

/// The largest number of units in a quota or a cost: what a structured header field can carry, and below 2^53, so that
/// a remote store that counts in floating point stays exact.
pub const MAX_UNITS: u64 = 999_999_999_999_999;

/// The longest window or refill period: ten years.
pub const MAX_PERIOD: Duration = Duration::from_secs(3_660 * 24 * 60 * 60);

/// The largest limit of a sliding log. Each unit may be an entry of 16 bytes; a log of tens of thousands of entries per key
/// would stall the store.
pub const MAX_LOG: u64 = 1_000;

/// The sub-buckets of a window, unless it says another number.
pub(crate) const DEFAULT_BUCKETS: u32 = 60;

/// The longest time from empty to full of a bucket: a hundred years.
const MAX_FILL: u64 = 100 * 366 * 24 * 60 * 60 * 1_000_000;

/// Products stay below this, so that they are exact where numbers are doubles.
const EXACT: u128 = 1 << 53;

/// What to take in place of a bucket that is not exact.
const ROUNDER: &str = "rounder rate, Quota::fixed_window, or count in larger units";

/// There is no calendar without the feature.
#[cfg(not(feature = "calendar"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Calendar {}

/// An algorithm with its numbers: how many units, in what window, with what burst.
///
/// A quota is plain data. It is checked when it becomes part of a rule set; [`Quota::validate`] does it earlier.
/// Which algorithm to take is the subject of the [`algorithm`](crate::algorithm) module. As text it is
/// `gcra 100/min burst 20`: it [parses](#impl-FromStr-for-Quota) and prints itself.
///
/// ```
/// use tollgate_core::{MINUTE, Quota, SECOND};
///
/// let calls = Quota::per_second(10); // 10 each second, evenly, and 10 at once
/// let api = Quota::token_bucket(20).refill(10, SECOND); // 10 a second, 20 at once
/// let login = Quota::sliding_log(5, MINUTE); // never more than 5 in any minute
/// assert!(calls.validate().is_ok() && api.validate().is_ok() && login.validate().is_ok());
/// ```
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    algorithm: AlgorithmKind,
    limit: u64,
    period: Duration,
    /// For buckets: what fits in at once.
    burst: u64,
    /// For the sliding window in sub-buckets: their number.
    buckets: u32,
    /// How long a slot is typically held; zero where it is not known.
    typical: Duration,
    /// When a limit of none ends.
    until: Option<NonZeroU64>,
    calendar: Option<Calendar>,
    /// A zone or a day that was set on a quota without a calendar: refused by `validate`.
    has_needless_calendar: bool,
}

/// A token bucket that needs a refill rate.
#[must_use = "a token bucket needs `.refill(units, period)`"]
#[derive(Clone, Copy, Debug)]
pub struct TokenBucketOf {
    capacity: u64,
}

impl TokenBucketOf {
    /// Refills evenly, `units` every `period`.
    pub const fn refill(self, units: u64, period: Duration) -> Quota {
        Quota::new(AlgorithmKind::TokenBucket, units, period).burst(self.capacity)
    }
}

/// A leaky bucket that needs a leak rate.
#[must_use = "a leaky bucket needs `.leak(units, period)`"]
#[derive(Clone, Copy, Debug)]
pub struct LeakyBucketOf {
    capacity: u64,
}

impl LeakyBucketOf {
    /// Leaks evenly, `units` every `period`.
    pub const fn leak(self, units: u64, period: Duration) -> Quota {
        Quota::new(AlgorithmKind::LeakyBucket, units, period).burst(self.capacity)
    }
}

/// The time in which so many units come back at `rate` units in each `period`: in microseconds, rounded up. For the crates of
/// tollgate.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn refill_time(units: u64, rate: u64, period: u64) -> u64 {
    match units.checked_mul(period) {
        Some(product) => product.div_ceil(rate.max(1)),
        None => {
            let wide = u128::from(units) * u128::from(period);
            u64::try_from(wide.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX)
        }
    }
}

impl Quota {
    pub(crate) const fn new(algorithm: AlgorithmKind, limit: u64, period: Duration) -> Self {
        Self {
            algorithm,
            limit,
            period,
            burst: limit,
            buckets: match algorithm {
                AlgorithmKind::SlidingBuckets => DEFAULT_BUCKETS,
                _ => 0,
            },
            typical: Duration::ZERO,
            until: None,
            calendar: None,
            has_needless_calendar: false,
        }
    }

    /// `limit` units in each window of `period`, windows aligned to the Unix epoch: a day begins at 00:00 UTC, and a week on
    /// Thursdays at 00:00 UTC.
    pub const fn fixed_window(limit: u64, period: Duration) -> Self {
        Self::new(AlgorithmKind::FixedWindow, limit, period)
    }

    /// `limit` units in each day, week, month or year of a calendar: from midnight in [a time zone](Self::zone), UTC by default.
    /// A month has 28 to 31 days, and a day 23 to 25 hours where clocks are changed. Otherwise it is a
    /// [fixed window](crate::algorithm::fixed_window).
    ///
    /// ```
    /// use tollgate_core::{Quota, calendar::{CalendarUnit, Weekday}};
    ///
    /// let plan = Quota::calendar(10_000_000, CalendarUnit::Month).zone("Europe/Zurich").from_day(15);
    /// assert_eq!(plan.to_string(), "calendar 10000000/month Europe/Zurich from 15");
    /// assert_eq!("10000000/month Europe/Zurich from 15".parse(), Ok(plan));
    ///
    /// let weekly = Quota::calendar(100, CalendarUnit::Week).week_from(Weekday::Sunday);
    /// assert_eq!("100/week from sunday".parse(), Ok(weekly));
    ///
    /// let wrong = Quota::calendar(5, CalendarUnit::Day).zone("Zurich").validate().unwrap_err();
    /// assert!(wrong.to_string().ends_with("did you mean \"Europe/Zurich\"?"), "{wrong}");
    /// ```
    ///
    /// # Accuracy
    ///
    /// The windows follow jiff's copy of the IANA database: a zone whose rules are changed needs a new version of this program.
    #[cfg(feature = "calendar")]
    pub const fn calendar(limit: u64, unit: CalendarUnit) -> Self {
        let period = Duration::from_secs(unit.seconds());
        let mut quota = Self::new(AlgorithmKind::FixedWindow, limit, period);
        quota.calendar = Some(Calendar::new(unit));
        quota
    }

    /// For [`calendar`](Self::calendar): the time zone, as the IANA database names it (`Europe/Zurich`). Default: UTC.
    #[cfg(feature = "calendar")]
    pub fn zone(self, name: &str) -> Self {
        self.with_calendar(|calendar| calendar.in_zone(name))
    }

    /// For [`calendar`](Self::calendar): the day on which months begin, 1 to 31. In a shorter month the last day takes the place of
    /// one that it has not. Default: 1.
    #[cfg(feature = "calendar")]
    pub fn from_day(self, day: u8) -> Self {
        self.with_calendar(|calendar| calendar.beginning_on(day))
    }

    /// For [`calendar`](Self::calendar): the day on which weeks begin. Default: Monday.
    #[cfg(feature = "calendar")]
    pub fn week_from(self, day: Weekday) -> Self {
        self.with_calendar(|calendar| calendar.week_from(day))
    }

    #[cfg(feature = "calendar")]
    fn with_calendar(mut self, change: impl FnOnce(Calendar) -> Calendar) -> Self {
        self.has_needless_calendar = self.calendar.is_none();
        self.calendar = self.calendar.map(change);
        self
    }

    /// The same calendar with another limit: [`calendar`](Self::calendar) with what was set.
    #[cfg(feature = "calendar")]
    pub const fn in_calendar(limit: u64, calendar: Calendar) -> Self {
        let mut quota = Self::calendar(limit, calendar.unit());
        quota.calendar = Some(calendar);
        quota
    }

    /// The calendar of its windows, if they have one.
    #[must_use]
    pub const fn calendar_of(&self) -> Option<Calendar> {
        self.calendar
    }

    /// `limit` units in a window of `period` that slides, estimated from two counters.
    pub const fn sliding_window(limit: u64, period: Duration) -> Self {
        Self::new(AlgorithmKind::SlidingWindow, limit, period)
    }

    /// Never more than `limit` units in any window of `period`, counted in 60 sub-buckets
    /// ([`buckets`](Self::buckets) changes their number).
    pub const fn sliding_buckets(limit: u64, period: Duration) -> Self {
        Self::new(AlgorithmKind::SlidingBuckets, limit, period)
    }

    /// Never more than `limit` units in any window of `period`, each unit remembered. For limits up to
    /// [`MAX_LOG`](crate::algorithm::sliding_log::MAX_LOG).
    pub const fn sliding_log(limit: u64, period: Duration) -> Self {
        Self::new(AlgorithmKind::SlidingLog, limit, period)
    }

    /// `limit` units every `period`, evenly spaced, and `limit` at once ([`burst`](Self::burst) changes that).
    pub const fn gcra(limit: u64, period: Duration) -> Self {
        Self::new(AlgorithmKind::Gcra, limit, period)
    }

    /// `units` each second, evenly spaced, and `units` at once: [`gcra`](Self::gcra)`(units, SECOND)`.
    ///
    /// ```
    /// use tollgate_core::{Quota, SECOND};
    ///
    /// assert_eq!(Quota::per_second(10), Quota::gcra(10, SECOND));
    /// // Ten each second, never two at once.
    /// assert_eq!(Quota::per_second(10).burst(1).limit(), 1);
    /// ```
    pub const fn per_second(units: u64) -> Self {
        Self::gcra(units, SECOND)
    }

    /// `units` each minute, evenly spaced, and `units` at once: [`gcra`](Self::gcra)`(units, MINUTE)`.
    pub const fn per_minute(units: u64) -> Self {
        Self::gcra(units, MINUTE)
    }

    /// `units` each hour, evenly spaced, and `units` at once: [`gcra`](Self::gcra)`(units, HOUR)`.
    pub const fn per_hour(units: u64) -> Self {
        Self::gcra(units, HOUR)
    }

    /// A bucket of `capacity` tokens, full at first. Say how fast it refills next.
    pub const fn token_bucket(capacity: u64) -> TokenBucketOf {
        TokenBucketOf { capacity }
    }

    /// A bucket that holds `capacity` units, empty at first; what would overflow is denied. Say how fast it leaks next.
    pub const fn leaky_bucket(capacity: u64) -> LeakyBucketOf {
        LeakyBucketOf { capacity }
    }

    /// At most `limit` at once: each request holds a slot until it ends, and its cost is the number of slots.
    ///
    /// ```
    /// use tollgate_core::Quota;
    ///
    /// let exports = Quota::concurrent(3);
    /// assert_eq!(exports.to_string(), "concurrent 3");
    /// assert!(Quota::concurrent(0).validate().is_err());
    /// ```
    pub const fn concurrent(limit: u64) -> Self {
        Self::new(AlgorithmKind::Concurrent, limit, Duration::ZERO)
    }

    /// For [`concurrent`](Self::concurrent): how long a request typically holds its slot. Denials then give that time as the
    /// time to retry. Without it they give none ([`Retry::Unknown`](crate::Retry::Unknown)).
    pub const fn typically(mut self, hold_time: Duration) -> Self {
        self.typical = hold_time;
        self
    }

    /// No limit: no call to the store, no header fields.
    pub const fn unlimited() -> Self {
        Self::new(AlgorithmKind::Unlimited, MAX_UNITS, MAX_PERIOD)
    }

    /// A limit that no request passes, whatever it costs: it blocks. No call to the store, no header fields, and the reason is
    /// [`Blocked`](crate::Reason::Blocked). As a rule's quota it blocks all that the rule applies to, and as a plan some clients.
    ///
    /// ```
    /// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Reason, Rule};
    ///
    /// let rule = Rule::new("api", Quota::gcra(60, MINUTE)).plan("revoked", Quota::none());
    /// let limiter = Limiter::new(MemoryStore::new(), [rule])?;
    /// let check = limiter.check_with_plan("api", "revoked", &Key::of("account-7"))?;
    /// let decision = limiter.acquire(&[check]).ready().expect("it needs no store");
    /// assert_eq!(decision.reason(), Some(Reason::Blocked));
    /// assert_eq!(decision.retry_after(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn none() -> Self {
        Self::new(AlgorithmKind::None, 0, Duration::ZERO)
    }

    /// For [`none`](Self::none): when it ends, by the clock of each process. The denial says how long that is, as any other
    /// does. From then on requests count under the rule's own quota, if this is a plan, and otherwise nothing is limited.
    pub fn until(mut self, end: SystemTime) -> Self {
        let end = end.duration_since(UNIX_EPOCH).map_or(0, micros);
        self.until = NonZeroU64::new(end.max(1));
        self
    }

    /// When it [ends](Self::until), if it does.
    #[must_use]
    pub fn ends_at(&self) -> Option<SystemTime> {
        Some(UNIX_EPOCH + Duration::from_micros(self.ends_at_tick()?))
    }

    /// The same in microseconds since the Unix epoch.
    pub(crate) fn ends_at_tick(&self) -> Option<Tick> {
        self.until.map(NonZeroU64::get)
    }

    /// For [`gcra`](Self::gcra): how many units may come at once. Of a token bucket and a leaky bucket it is the capacity. Windows have
    /// their limit: [`validate`](Self::validate) refuses another burst.
    pub const fn burst(mut self, units: u64) -> Self {
        self.burst = units;
        self
    }

    /// For [`sliding_buckets`](Self::sliding_buckets): in how many sub-buckets the window is counted, 2 to 600.
    pub const fn buckets(mut self, buckets: u32) -> Self {
        self.buckets = buckets;
        self
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> AlgorithmKind {
        self.algorithm
    }

    /// Units per [`period`](Self::period).
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.limit
    }

    /// The window, or the time in which [`rate`](Self::rate) units come back.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How long a slot is [typically](Self::typically) held; `None` where it is not known.
    pub(crate) const fn typical_hold_time(&self) -> Option<Duration> {
        match self.typical.is_zero() {
            true => None,
            false => Some(self.typical),
        }
    }

    /// What passes at once when nothing was used: the limit of a window, the burst or capacity of a bucket, the slots.
    ///
    /// Header fields show this number as the quota; `remaining` is never above it.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        match self.algorithm.is_bucket() {
            true => self.burst,
            false => self.limit,
        }
    }

    /// The time in which [`limit`](Self::limit) units come back: the window, or the time from empty to full of a
    /// bucket, rounded up to microseconds. Zero for slots, which time does not bring back.
    pub fn window(&self) -> Duration {
        let fill = self.refill_micros(self.burst);
        fill.map_or(self.period, Duration::from_micros)
    }

    /// The time in which a bucket refills `units`, in microseconds, rounded up. `None` for other algorithms.
    pub(crate) fn refill_micros(&self, units: u64) -> Option<u64> {
        let is_bucket = self.algorithm.is_bucket();
        is_bucket.then(|| refill_time(units, self.limit, micros(self.period)))
    }

    /// Whether this is [`unlimited`](Self::unlimited).
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        matches!(self.algorithm, AlgorithmKind::Unlimited)
    }

    /// Whether this is [`none`](Self::none).
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self.algorithm, AlgorithmKind::None)
    }

    /// Whether something is counted for it: it is neither [`unlimited`](Self::unlimited) nor [`none`](Self::none).
    #[must_use]
    pub const fn has_state(&self) -> bool {
        !self.is_unlimited() && !self.is_none()
    }

    /// The number of sub-buckets; 0 where there are none.
    #[must_use]
    pub const fn bucket_count(&self) -> u32 {
        self.buckets
    }

    /// Whether `self` can be read on a state that is written for `other`: the same algorithm, and the same window or
    /// rate.
    #[must_use]
    pub fn reads_state_of(&self, other: &Self) -> bool {
        if self.algorithm != other.algorithm || !self.has_state() {
            return false;
        }
        if self.algorithm.is_bucket() {
            // Equal rates, whatever the numbers they are written with.
            return u128::from(self.limit) * other.period.as_micros()
                == u128::from(other.limit) * self.period.as_micros();
        }
        self.period == other.period
            && self.buckets == other.buckets
            && self.calendar == other.calendar
    }

    /// This quota's share for one of `instances` processes: the same windows and an equal part of the units, at least
    /// one.
    ///
    /// A bucket keeps the exact rate (`rate` units in `instances` periods); where that is not possible the units are
    /// divided and rounded down.
    pub fn share(&self, instances: u32) -> Self {
        if !self.has_state() {
            return *self;
        }
        let instances = instances.max(1);
        let mut share = *self;
        share.burst = (self.burst / u64::from(instances)).max(1);
        if self.algorithm.is_bucket() {
            share.period = self.period.saturating_mul(instances);
            if share.validate().is_ok() {
                return share;
            }
            share.period = self.period;
        }
        share.limit = (self.limit / u64::from(instances)).max(1);
        share
    }

    /// The same, or [`none`](Self::none) where its units are 0, as in text: of a quota that is computed, say for a suspended plan.
    #[doc(hidden)]
    pub fn or_none(self) -> Self {
        match self.has_state() && self.limit.min(self.limit()) == 0 {
            true => Self::none(),
            false => self,
        }
    }

    /// So many thousandths of the units in the same time, rounded up. Of those that pass at once at least `least` are left, or all, if they
    /// are fewer. `None`: it has no units, or could not be counted exactly. For rules in files, which switches scale.
    #[doc(hidden)]
    #[must_use]
    pub fn scaled(&self, permille: u64, least: u64) -> Option<Self> {
        if permille == 1_000 || !self.has_state() {
            return (permille == 1_000).then_some(*self);
        }
        let part = |units: u64| {
            let units = (u128::from(units) * u128::from(permille)).div_ceil(1_000);
            u64::try_from(units).unwrap_or(u64::MAX).max(1)
        };
        let mut scaled = *self;
        scaled.burst = part(self.limit()).max(least.min(self.limit()));
        scaled.limit = match self.algorithm.is_bucket() {
            true => part(self.limit),
            false => scaled.burst,
        };
        scaled.validate().is_ok().then_some(scaled)
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// Says which number cannot be used, and what would be right: a limit, window, burst or capacity of zero; more than
    /// [`MAX_UNITS`]; a window above [`MAX_PERIOD`] or below a microsecond; a burst or sub-buckets on a quota that has none;
    /// numbers that could not be counted exactly.
    pub fn validate(&self) -> Result<(), RuleError> {
        let error = |wrong| RuleError::general(RuleErrorKind::Quota, wrong);
        self.validate_numbers().map_err(error)
    }

    /// This quota, if it is valid and `machine` writes its states.
    pub(crate) fn valid_for(&self, machine: AlgorithmKind) -> Option<&Self> {
        let is_of_it = self.algorithm.state_machine() == Some(machine);
        (is_of_it && self.validate().is_ok()).then_some(self)
    }

    fn validate_numbers(&self) -> Result<(), String> {
        use AlgorithmKind as A;
        let (algorithm, limit, period) = (self.algorithm, self.limit, self.period);
        if let Some((what, why)) = self.misplaced() {
            return Err(format!("{what} does not apply to {algorithm}: {why}"));
        }
        if !self.has_state() {
            return Ok(());
        }
        #[cfg(feature = "calendar")]
        if let Some(calendar) = self.calendar {
            calendar.validate()?;
        }
        let unit = match algorithm {
            A::TokenBucket => "refill",
            A::LeakyBucket => "leak",
            _ => "limit",
        };
        validate_units(unit, limit)?;
        if algorithm == A::Concurrent {
            let typical = self.typical_hold_time();
            return typical.map_or(Ok(()), |typical| {
                validate_time("a typical hold time of", typical, " (ten years)")
            });
        }
        if period.is_zero() {
            return Err(
                "a time of 0 holds nothing; take at least 1 µs, for example one second".into(),
            );
        }
        validate_time("a window of", period, " (ten years)")?;
        if algorithm.is_bucket() {
            return self.validate_bucket();
        }
        if algorithm == A::SlidingBuckets {
            return self.validate_sliding_buckets();
        }
        let (units, micros) = (u128::from(limit), u128::from(micros(period)));
        let is_exact = units * micros < EXACT || 2 * units * units < EXACT;
        match algorithm {
            A::SlidingLog if limit > MAX_LOG => Err(format!(
                "a sliding log of {limit} units would remember each of them; the most is {MAX_LOG}. Take {}, which never lets \
                 more pass either, at a fixed size",
                Self::sliding_buckets(limit, period)
            )),
            A::SlidingWindow if limit > u64::from(u32::MAX) || !is_exact => Err(format!(
                "a sliding window of {} in {period:?} cannot be weighted exactly to a unit; \
                 take Quota::gcra, Quota::fixed_window, or count in larger units",
                in_words(limit)
            )),
            _ => Ok(()),
        }
    }

    /// A setting of another algorithm, and where it belongs.
    fn misplaced(&self) -> Option<(String, &'static str)> {
        let is_concurrent = self.algorithm == AlgorithmKind::Concurrent;
        if self.until.is_some() && !self.is_none() {
            let why = "a limit that ends blocks until then, and is Quota::none()";
            return Some(("an end".into(), why));
        }
        if let Some(typical) = self.typical_hold_time().filter(|_| !is_concurrent) {
            let why = "nothing is held there; it belongs to Quota::concurrent";
            return Some((format!("a typical hold time of {typical:?}"), why));
        }
        if self.has_needless_calendar {
            let what = "a time zone or a first day".into();
            return Some((what, "it belongs to Quota::calendar"));
        }
        if self.buckets != 0 && self.algorithm != AlgorithmKind::SlidingBuckets {
            let what = format!("a number of {} sub-buckets", self.buckets);
            return Some((what, "it has none; they belong to Quota::sliding_buckets"));
        }
        let why = "its limit is what may come at once; for a separate burst take Quota::gcra or Quota::token_bucket";
        (self.burst != self.limit && !self.algorithm.is_bucket())
            .then(|| (format!("a burst of {}", in_words(self.burst)), why))
    }

    fn validate_bucket(&self) -> Result<(), String> {
        let (limit, period) = (self.limit, self.period);
        let what = match self.algorithm {
            AlgorithmKind::Gcra => "burst",
            _ => "capacity",
        };
        validate_units(what, self.burst)?;
        let (numerator, denominator) = lowest_terms(micros(period), limit);
        if denominator > u64::from(u32::MAX) {
            return Err(format!(
                "{} every {period:?} cannot be counted exactly: the fraction {numerator}/{denominator} µs a unit has a \
                 denominator above {}; take a {ROUNDER}",
                in_words(limit),
                u32::MAX
            ));
        }
        // The whole µs of a unit are exact where the time to fill it up is not too long.
        let rest = u128::from(numerator % denominator);
        let (wrong, rate) = if micros(self.window()) > MAX_FILL {
            ("takes more than a hundred years to fill up", "faster rate")
        } else if u128::from(self.burst) * rest >= EXACT {
            ("cannot be counted exactly", ROUNDER)
        } else {
            return Ok(());
        };
        Err(format!(
            "a {what} of {} at {} every {period:?} {wrong}; take a smaller {what} or a {rate}",
            in_words(self.burst),
            in_words(limit)
        ))
    }

    fn validate_sliding_buckets(&self) -> Result<(), String> {
        let (limit, period, buckets) = (self.limit, self.period, self.buckets);
        if limit > u64::from(u32::MAX) {
            return Err(format!(
                "a sliding window in sub-buckets of {limit} units is above {}; count in larger units",
                u32::MAX
            ));
        }
        if !(2..=600).contains(&buckets) {
            return Err(format!(
                "{buckets} sub-buckets are not between 2 and 600; 60 keep the window to 1/60"
            ));
        }
        if micros(period) < u64::from(buckets) {
            return Err(format!(
                "a window of {period:?} cannot be cut into {buckets} sub-buckets of at least a microsecond"
            ));
        }
        Ok(())
    }
}

/// Refuses units that let nothing pass, or that are too many to be counted.
fn validate_units(what: &str, units: u64) -> Result<(), String> {
    match units {
        0 => Err(format!(
            "a {what} of 0 units would never let anything pass; take at least 1, or block by Quota::none(), in text \"none\""
        )),
        1..=MAX_UNITS => Ok(()),
        _ => Err(format!(
            "a {what} of {units} units is above {MAX_UNITS}; count in larger units, or take Quota::unlimited"
        )),
    }
}

/// `1 unit`, `5 units`.
fn in_words(units: u64) -> String {
    format!("{units} unit{}", if units == 1 { "" } else { "s" })
}

/// Refuses a time that is none, too long, or between two microseconds.
pub(crate) fn validate_time(what: &str, time: Duration, remedy: &str) -> Result<(), String> {
    if time.is_zero() || time > MAX_PERIOD {
        return Err(format!(
            "{what} {time:?} is not between 1 µs and {MAX_PERIOD:?}{remedy}"
        ));
    }
    match time.subsec_nanos().is_multiple_of(1_000) {
        true => Ok(()),
        false => Err(format!(
            "{what} {time:?} is not a whole number of microseconds, in which time is counted"
        )),
    }
}

// As it is written in documents.
crate::debug_fields!(Quota as Display);

/// The numerator and the denominator of a fraction in lowest terms.
pub(crate) fn lowest_terms(numerator: u64, denominator: u64) -> (u64, u64) {
    let (mut divisor, mut rest) = (numerator, denominator);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let divisor = divisor.max(1);
    (numerator / divisor, denominator / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{DAY, MINUTE, SECOND};

    fn refused(quota: Quota, words: &[&str]) {
        let error = quota.validate().expect_err("it is not a quota").to_string();
        for word in words {
            assert!(error.contains(word), "{error:?} lacks {word:?}");
        }
    }

    #[test]
    fn what_has_no_limit_has_no_share_and_no_state() {
        let unlimited = Quota::unlimited();
        assert_eq!(unlimited.share(3), unlimited);
        assert!(!unlimited.reads_state_of(&unlimited));
    }

    #[test]
    fn units_of_centuries_come_back_to_the_microsecond() {
        let quota = Quota::gcra(7, MAX_PERIOD);
        let period = MAX_PERIOD.as_micros();
        // Below, at and above what 64 bits hold.
        for units in [1, 8, 50_000, 58_332, 58_333, 400_000] {
            let exact = (u128::from(units) * period).div_ceil(7);
            let expected = u64::try_from(exact).unwrap_or(u64::MAX);
            assert_eq!(quota.refill_micros(units), Some(expected), "{units}");
        }
        assert_eq!(quota.refill_micros(MAX_UNITS), Some(u64::MAX));
        assert_eq!(Quota::fixed_window(7, DAY).refill_micros(1), None);
    }

    #[test]
    fn a_quota_that_cannot_work_says_what_would() {
        refused(
            Quota::concurrent(2).burst(3),
            &["burst of 3", "Quota::gcra"],
        );
        refused(
            Quota::gcra(2, SECOND).typically(SECOND),
            &["typical", "Quota::concurrent"],
        );
        refused(
            Quota::gcra(5, SECOND).burst(MAX_UNITS + 1),
            &["burst of 1000000000000000", "larger units"],
        );
        refused(
            Quota::concurrent(MAX_UNITS + 1),
            &["1000000000000000", "Quota::unlimited"],
        );
        refused(
            Quota::concurrent(5).typically(Duration::from_nanos(1_500)),
            &["1.5µs", "whole"],
        );
        refused(
            Quota::sliding_log(70_000, MINUTE),
            &["70000", "sliding_buckets"],
        );
        refused(
            Quota::sliding_window(10, MINUTE).burst(20),
            &["burst of 20", "gcra"],
        );
        refused(
            Quota::sliding_buckets(10, MINUTE).buckets(1),
            &["1 sub-buckets"],
        );
        for quota in [
            Quota::fixed_window(10, MINUTE),
            Quota::token_bucket(5).refill(10, MINUTE),
        ] {
            refused(
                quota.buckets(7),
                &["7 sub-buckets", "Quota::sliding_buckets"],
            );
        }
        refused(
            Quota::gcra(4_294_967_311, MINUTE),
            &[
                "4294967311",
                "rounder",
                "Quota::fixed_window",
                "larger units",
            ],
        );
        refused(
            Quota::gcra(4_294_967_295, MINUTE),
            &["counted exactly", "smaller burst or a rounder"],
        );
        refused(
            Quota::gcra(1 << 40, DAY),
            &["counted exactly", "Quota::fixed_window", "larger units"],
        );
        refused(
            Quota::gcra(1, MAX_PERIOD).burst(4_294_967_295),
            &["4294967295", "a hundred years", "smaller burst or a faster"],
        );
        refused(
            Quota::sliding_window(100_000_000, DAY),
            &["100000000", "gcra"],
        );
    }

    #[test]
    fn a_share_keeps_the_rate_of_a_bucket_exact_and_divides_a_window() {
        let bucket = Quota::token_bucket(20).refill(10, SECOND).share(3);
        assert_eq!(
            (bucket.rate(), bucket.period(), bucket.limit()),
            (10, 3 * SECOND, 6)
        );
        assert_eq!(Quota::fixed_window(100, MINUTE).share(3).limit(), 33);
        assert_eq!(Quota::fixed_window(2, MINUTE).share(3).limit(), 1);
    }

    #[test]
    fn the_window_of_a_bucket_is_the_time_from_empty_to_full() {
        assert_eq!(Quota::gcra(20, SECOND).burst(40).window(), 2 * SECOND);
        assert_eq!(
            Quota::gcra(3, SECOND).burst(1).window(),
            Duration::from_micros(333_334)
        );
    }
}
