//! Windows of a calendar: months, years and days of a time zone, whose lengths differ.
//!
//! A window is known by its end, in ticks. It is computed from the rules of the zone, in jiff's own copy of the IANA database, so that
//! no machine has other rules than the next one. What was computed last is remembered: nearly every request asks about the same window.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::{
    Timestamp,
    civil::{Date, date},
    tz::{TimeZone, TimeZoneDatabase},
};
use parking_lot::RwLock;

use crate::{
    error::did_you_mean,
    macros::{FNV, fnv},
    time::Tick,
};

/// How long a window of [`Quota::calendar`](crate::Quota::calendar) lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight: 23 to 25 hours where clocks are changed.
    Day,
    /// From Monday, or another [day](crate::Quota::week_from).
    Week,
    /// From the first, or another [day](crate::Quota::from_day).
    Month,
    /// From the first of January.
    Year,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "their names say all")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// The windows of a calendar: their unit, the time zone, and the day on which they begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: CalendarUnit,
    /// A reference to its name, so that quotas stay small.
    zone: &'static &'static str,
    from_day: u8,
    week_from: Weekday,
    /// What was said that does not fit: refused by `validate`.
    has_unknown_zone: bool,
    /// The unit that a first day belongs to which was said of another.
    first_day_of: Option<&'static str>,
}

/// How many windows are looked ahead. Rules owe at most 102; a count of a far larger limit may take longer.
const FURTHEST: u64 = 128;
/// A second in ticks.
const SECOND: u64 = 1_000_000;
/// The units of time in which the lengths of windows are told to a store: all zones have kept to quarters of an hour since 1972.
const QUARTER: u64 = 900 * SECOND;

impl CalendarUnit {
    /// Each unit with its names and with the usual longest length of a window, in seconds. The first name is printed.
    pub(crate) const ALL: [(Self, &'static [&'static str], u64); 4] = [
        (Self::Day, &["day", "d", "days"], 86_400),
        (Self::Week, &["week", "w", "weeks"], 7 * 86_400),
        (Self::Month, &["month", "mo", "months"], 31 * 86_400),
        (Self::Year, &["year", "y", "years"], 366 * 86_400),
    ];

    /// Its name: `month`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1[0]
    }

    pub(crate) const fn seconds(self) -> u64 {
        Self::ALL[self as usize].2
    }
}

impl Weekday {
    /// All of them, with their names.
    pub(crate) const ALL: [(Self, &'static str); 7] = [
        (Self::Monday, "monday"),
        (Self::Tuesday, "tuesday"),
        (Self::Wednesday, "wednesday"),
        (Self::Thursday, "thursday"),
        (Self::Friday, "friday"),
        (Self::Saturday, "saturday"),
        (Self::Sunday, "sunday"),
    ];
}

impl Calendar {
    pub(crate) const fn new(unit: CalendarUnit) -> Self {
        Self {
            unit,
            zone: UTC,
            from_day: 1,
            week_from: Weekday::Monday,
            has_unknown_zone: false,
            first_day_of: None,
        }
    }

    pub(crate) fn in_zone(mut self, name: &str) -> Self {
        let mut zones = ZONES.iter();
        let known = zones.find(|zone| zone.eq_ignore_ascii_case(name));
        self.has_unknown_zone = known.is_none();
        self.zone = known.unwrap_or_else(|| unknown_zone(name));
        self
    }

    pub(crate) const fn beginning_on(mut self, day: u8) -> Self {
        if !matches!(self.unit, CalendarUnit::Month) {
            self.first_day_of = Some("month");
        }
        self.from_day = day;
        self
    }

    pub(crate) const fn week_from(mut self, day: Weekday) -> Self {
        if !matches!(self.unit, CalendarUnit::Week) {
            self.first_day_of = Some("week");
        }
        self.week_from = day;
        self
    }

    /// The unit.
    #[must_use]
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The name of the time zone, as the IANA database has it.
    #[must_use]
    pub fn zone(&self) -> &'static str {
        self.zone
    }

    /// What cannot be used.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let (name, unit) = (*self.zone, self.unit.name());
        if self.has_unknown_zone {
            // Most people know the city.
            let city = |zone: &&str| zone.rsplit('/').next() == Some(name);
            let zones = || ZONES.iter().copied();
            let known = zones().find(city).or_else(|| did_you_mean(name, zones()));
            let meant = known.map_or_else(
                || "write it as \"Europe/Zurich\" or \"UTC\"".to_owned(),
                |meant| format!("did you mean {meant:?}?"),
            );
            return Err(format!(
                "{name:?} is not a time zone of the IANA database; {meant}"
            ));
        }
        if let Some(of) = self.first_day_of {
            return Err(format!(
                "a first day of the {of} does not apply to a window of a {unit}; it belongs to a {of}"
            ));
        }
        match self.from_day {
            1..=31 => Ok(()),
            day => Err(format!(
                "a month has no day {day}; take 1 to 31, where 31 is the last day of shorter months too"
            )),
        }
    }

    /// Where each window ends.
    pub(crate) fn windows(self) -> &'static CalendarWindows {
        static ALL: LazyLock<RwLock<HashMap<Calendar, &'static CalendarWindows>>> =
            LazyLock::new(RwLock::default);
        if let Some(windows) = ALL.read().get(&self) {
            return windows;
        }
        // There are only so many zones and days.
        ALL.write().entry(self).or_insert_with(|| {
            let zone = TimeZoneDatabase::bundled().get(self.zone);
            Box::leak(Box::new(CalendarWindows {
                calendar: self,
                zone: zone.unwrap_or(TimeZone::UTC),
                last: AtomicU64::new(0),
            }))
        })
    }

    /// When the window of `now` begins and ends, with the zone, as in RFC 9557: `2026-08-01T00:00:00+02:00[Europe/Zurich]`.
    #[must_use]
    pub fn window(&self, now: Tick) -> [String; 2] {
        let windows = self.windows();
        let (begin, end) = windows.window(now);
        [begin, end].map(|tick| {
            let seconds = i64::try_from(tick / SECOND).unwrap_or(i64::MAX);
            let at = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
            at.to_zoned(windows.zone.clone()).to_string()
        })
    }

    /// The window of `now` and the next one, for a store that knows no calendar: 2^52, the end of this one in seconds above 18 bits
    /// that stand for the calendar; and the lengths of both in quarters of an hour, that of the next one above 16 bits.
    #[must_use]
    pub fn in_words(&self, now: Tick) -> (u64, u32) {
        let windows = self.windows();
        let (begin, end) = windows.window(now);
        // At most 65 535: a year has 35 136.
        let quarters = |length: u64| (length / QUARTER).clamp(1, 0xffff) as u32;
        // Until the year 2514.
        let seconds = (end / SECOND).min((1 << 34) - 1);
        let first = 1 << 52 | seconds << 18 | self.id();
        (
            first,
            quarters(end - begin) | quarters(windows.end(end) - end) << 16,
        )
    }

    /// The end of a window as a store of [two windows](Self::in_words) tells it at `now`: to the store those after them are as long as the
    /// second one.
    #[must_use]
    pub fn end_told(&self, now: Tick, told: Tick) -> Tick {
        let windows = self.windows();
        let end = windows.end(now);
        let next = windows.end(end);
        let (length, over) = ((next - end).max(1), told.saturating_sub(next));
        match over % length {
            0 if over > 0 && over / length <= FURTHEST => windows.after(next, over / length),
            // The end of a window of another quota, or of one far ahead from before the clock went back.
            _ => told,
        }
    }

    /// What stands for it in a store, in 18 bits.
    fn id(&self) -> u64 {
        // Over what users write: the same in every process and every version.
        let days = [self.unit as u8, self.from_day, self.week_from as u8];
        let hash = fnv(fnv(FNV, self.zone.as_bytes()), &days);
        // The last bytes are in the lowest bits only.
        (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46
    }
}

/// As it is written in a quota: `month Europe/Zurich from 15`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.unit.name())?;
        if self.zone != UTC {
            write!(f, " {}", self.zone)?;
        }
        match self.unit {
            CalendarUnit::Month if self.from_day != 1 => write!(f, " from {}", self.from_day),
            CalendarUnit::Week if self.week_from != Weekday::Monday => {
                write!(f, " from {}", Weekday::ALL[self.week_from as usize].1)
            }
            _ => Ok(()),
        }
    }
}

crate::debug_fields!(Calendar as Display);

const UTC: &&str = &"UTC";

/// The names of all zones.
static ZONES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let database = TimeZoneDatabase::bundled();
    let names = database
        .available()
        .map(|name| -> &'static str { name.as_str().to_owned().leak() });
    names.collect()
});

/// A name that there is not, for the error. Few mistakes are made at a time; of more than that, the names are lost.
fn unknown_zone(name: &str) -> &'static &'static str {
    static UNKNOWN: RwLock<Vec<&'static &'static str>> = RwLock::new(Vec::new());
    const MOST: usize = 256;
    let name: String = name.chars().take(64).collect();
    let mut names = UNKNOWN.write();
    if let Some(known) = names.iter().find(|other| ***other == name) {
        return known;
    }
    if names.len() == MOST {
        return &"?";
    }
    let leaked = &*Box::leak(Box::new(&*name.leak()));
    names.push(leaked);
    leaked
}

/// Where the windows of a calendar begin and end.
pub(crate) struct CalendarWindows {
    calendar: Calendar,
    zone: TimeZone,
    /// The window that was asked for last: its end in seconds since the epoch, and its length in seconds in the lower 28 bits, in one
    /// number so that both are of one window.
    last: AtomicU64,
}

const LENGTH_BITS: u32 = 28;

/// Each calendar has one of them.
impl PartialEq for CalendarWindows {
    fn eq(&self, other: &Self) -> bool {
        self.calendar == other.calendar
    }
}

crate::debug_fields!(CalendarWindows, it => calendar: it.calendar);

impl CalendarWindows {
    /// When the window of `now` is over: later than `now`, but at the end of time.
    pub(crate) fn end(&self, now: Tick) -> Tick {
        self.window(now).1
    }

    /// The `n`th window after one, by their ends; no further than is looked ahead.
    pub(crate) fn after(&self, window: Tick, n: u64) -> Tick {
        (0..n.min(FURTHEST)).fold(window, |end, _| self.end(end))
    }

    /// The beginning and the end of the window of `now`.
    pub(crate) fn window(&self, now: Tick) -> (Tick, Tick) {
        let last = self.last.load(Ordering::Relaxed);
        let end = (last >> LENGTH_BITS) * SECOND;
        let begin = end - (last & ((1 << LENGTH_BITS) - 1)) * SECOND;
        if begin <= now && now < end {
            return (begin, end);
        }
        self.compute(now)
    }

    fn compute(&self, now: Tick) -> (Tick, Tick) {
        // Later than what a civil date can be, time stands still.
        const LAST: u64 = 250_000_000_000;
        let seconds = (now / SECOND).min(LAST);
        let found = self.seconds(i64::try_from(seconds).unwrap_or_default());
        let (begin, end) = found
            // The first windows begin before the epoch.
            .and_then(|(begin, end)| {
                Some((u64::try_from(begin.max(0)).ok()?, u64::try_from(end).ok()?))
            })
            .filter(|(begin, end)| *begin <= seconds && seconds < *end)
            .unwrap_or((seconds, seconds + self.calendar.unit.seconds()));
        let length = end - begin;
        if length < 1 << LENGTH_BITS && end < 1 << (64 - LENGTH_BITS) {
            let last = end << LENGTH_BITS | length;
            self.last.store(last, Ordering::Relaxed);
        }
        (begin * SECOND, end * SECOND)
    }

    fn seconds(&self, now: i64) -> Option<(i64, i64)> {
        let local = self.zone.to_datetime(Timestamp::from_second(now).ok()?);
        let starts = |date: Date| {
            let start = date.to_zoned(self.zone.clone()).ok()?;
            Some(start.timestamp().as_second())
        };
        let day = local.date();
        let (first, next) = match self.calendar.unit {
            CalendarUnit::Day => (day, day.tomorrow().ok()?),
            CalendarUnit::Week => {
                let days = i64::from(day.weekday().to_monday_zero_offset())
                    - self.calendar.week_from as i64;
                let behind = days.rem_euclid(7);
                let first = day.checked_sub(jiff::Span::new().days(behind)).ok()?;
                (first, first.checked_add(jiff::Span::new().days(7)).ok()?)
            }
            CalendarUnit::Month => {
                let this = self.first_of(day.first_of_month());
                let other = |months: i64| {
                    let span = jiff::Span::new().months(months);
                    let month = day.first_of_month().checked_add(span).ok()?;
                    Some(self.first_of(month))
                };
                match day < this {
                    true => (other(-1)?, this),
                    false => (this, other(1)?),
                }
            }
            CalendarUnit::Year => (date(day.year(), 1, 1), date(day.year() + 1, 1, 1)),
        };
        let (mut begin, mut end) = (starts(first)?, starts(next)?);
        // A day that a zone has left out is over when it begins.
        let mut after = next;
        while end <= now {
            after = after.tomorrow().ok()?;
            (begin, end) = (end, starts(after)?);
        }
        Some((begin, end))
    }

    /// The day on which the window of a month begins, by the first of the month.
    fn first_of(&self, month: Date) -> Date {
        let day = i8::try_from(self.calendar.from_day)
            .unwrap_or(1)
            .clamp(1, month.days_in_month());
        date(month.year(), month.month(), day)
    }
}
