//! Random quotas and rule sets.

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    Block, DAY, HOUR, MAX_PERIOD, MAX_UNITS, MINUTE, Quota, Rule, RuleSet, SECOND,
    calendar::{CalendarUnit, Weekday},
};
use tollgate_test_servers::numbers::Numbers;

/// Algorithms with one state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Gcra,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    SlidingBuckets,
    /// A fixed window, mostly of a calendar.
    Calendar,
    /// A bucket, of a rule whose requests mostly wait.
    Queue,
    /// One that may owe units.
    Debt,
}

impl Family {
    pub(crate) const ALL: [Self; 5] = [
        Self::Gcra,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingLog,
        Self::SlidingBuckets,
    ];
}

/// What is drawn once for the rules of a name, so that its quotas differ in some numbers and agree in others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    family: Family,
    /// Which constructor, for buckets.
    kind: u64,
    period: Duration,
    /// No period is shorter.
    shortest: Duration,
    limit: u64,
    /// How many units may be owed.
    debt: u64,
    /// One for all: the script knows where windows end by the request alone, and of another calendar only the lengths.
    calendar: Quota,
    /// Whether all quotas are of the calendar: of another quota's the script does not know for how long it has units owed, nor where
    /// its windows were that are over when the clock has gone back to them.
    is_calendar_only: bool,
}

impl Range {
    pub(crate) fn draw(family: Family, goes_back: bool, numbers: &mut Numbers) -> Self {
        let range = Self {
            family,
            kind: numbers.below(3),
            period: period(numbers),
            shortest: Duration::ZERO,
            limit: limit(numbers),
            debt: 0,
            calendar: calendar(1, numbers),
            is_calendar_only: goes_back,
        };
        match family {
            Family::Debt => range.owing(numbers),
            _ => range,
        }
    }

    fn owing(mut self, numbers: &mut Numbers) -> Self {
        self.family = numbers.of(&[
            Family::Gcra,
            Family::FixedWindow,
            Family::SlidingWindow,
            Family::Calendar,
        ]);
        self.limit = self.limit.min(1_000_000);
        self.debt = 1 + numbers.below(3 * self.limit);
        self.is_calendar_only = true;
        self
    }

    /// For how long requests wait, if they do: for a part of a unit, for some, or for long.
    fn wait(&self, quota: &Quota, numbers: &mut Numbers) -> Option<Duration> {
        let unit = quota.period().as_micros() as u64 / quota.rate() + 1;
        let wait = match numbers.below(8) {
            0 => return None,
            1 => 1 + numbers.below(unit),
            2..5 => 1 + numbers.below(unit.saturating_mul(5)),
            5 => numbers.below(100_000_000),
            _ => unit.saturating_mul(3),
        };
        let longest = MAX_PERIOD.as_micros() as u64;
        Some(Duration::from_micros(wait.clamp(1, longest)))
    }

    /// The same for windows of 50 ms, or nearly, and few units. None is of some ms alone: a state lives from when the server begins the
    /// script, and counts from when the script asks for the time. If the server is kept from its processor for a ms in between, it
    /// forgets the state by as much too early.
    pub(crate) fn short(family: Family, numbers: &mut Numbers) -> Self {
        let micros = numbers.of(&[50_000, 50_000, 49_999, 50_001, 25_000]);
        let range = Self {
            family,
            kind: numbers.below(3),
            period: Duration::from_micros(micros),
            shortest: Duration::from_millis(10),
            limit: 1 + numbers.below(12),
            debt: 0,
            calendar: Quota::calendar(1, CalendarUnit::Month),
            is_calendar_only: false,
        };
        match family {
            Family::Debt => range.owing(numbers),
            _ => range,
        }
    }

    /// A valid quota.
    fn quota(&self, numbers: &mut Numbers) -> Quota {
        loop {
            let period = match numbers.below(4) {
                0 => period(numbers),
                1 => self.period * 2,
                _ => self.period,
            };
            let limit = match numbers.below(5) {
                0 => limit(numbers),
                1 => 1 + numbers.below(self.limit.saturating_mul(2)),
                2 => self.limit.saturating_add(1),
                _ => self.limit,
            };
            let burst = match numbers.below(4) {
                0 => 1 + numbers.below(20),
                1 => self::limit(numbers),
                _ => limit,
            };
            let quota = match self.family {
                Family::Gcra | Family::Queue => match self.kind {
                    0 => Quota::gcra(limit, period).burst(burst),
                    1 => Quota::token_bucket(burst).refill(limit, period),
                    _ => Quota::leaky_bucket(burst).leak(limit, period),
                },
                Family::Calendar if numbers.below(4) > 0 || self.is_calendar_only => {
                    match self.calendar.calendar_of() {
                        Some(calendar) => Quota::in_calendar(limit, calendar),
                        None => self.calendar,
                    }
                }
                Family::FixedWindow | Family::Calendar => Quota::fixed_window(limit, period),
                Family::SlidingWindow => Quota::sliding_window(limit, period),
                Family::SlidingLog | Family::Debt => Quota::sliding_log(1 + limit % 12, period),
                Family::SlidingBuckets => {
                    let buckets = numbers.of(&[2, 3, 7, 60, 60, 600]);
                    Quota::sliding_buckets(limit, period).buckets(buckets)
                }
            };
            if quota.validate().is_ok() && quota.period() >= self.shortest {
                return quota;
            }
        }
    }

    /// Another limit on the state of `quota`.
    fn threshold(&self, quota: &Quota, numbers: &mut Numbers) -> Quota {
        let units = 1 + numbers.below(quota.limit().saturating_mul(2));
        let (rate, period) = (quota.rate(), quota.period());
        match self.family {
            Family::Gcra | Family::Queue => match self.kind {
                0 => Quota::gcra(rate, period).burst(units),
                1 => Quota::token_bucket(units).refill(rate, period),
                _ => Quota::leaky_bucket(units).leak(rate, period),
            },
            Family::FixedWindow | Family::Calendar => match quota.calendar_of() {
                Some(calendar) => Quota::in_calendar(units, calendar),
                None => Quota::fixed_window(units, period),
            },
            Family::SlidingWindow => Quota::sliding_window(units, period),
            Family::SlidingLog | Family::Debt => Quota::sliding_log(units, period),
            Family::SlidingBuckets => {
                Quota::sliding_buckets(units, period).buckets(quota.bucket_count())
            }
        }
    }
}

fn calendar(limit: u64, numbers: &mut Numbers) -> Quota {
    use CalendarUnit::{Day, Month, Week, Year};
    let quota = Quota::calendar(limit, numbers.of(&[Day, Week, Month, Year]));
    let quota = quota.zone(numbers.of(&["UTC", "Europe/Zurich", "Australia/Lord_Howe"]));
    match quota.calendar_of().map(|calendar| calendar.unit()) {
        Some(Month) => quota.from_day(1 + numbers.below(31) as u8),
        Some(Week) => quota.week_from(numbers.of(&[Weekday::Monday, Weekday::Sunday])),
        _ => quota,
    }
}

fn period(numbers: &mut Numbers) -> Duration {
    let any = Duration::from_micros(1 + numbers.below(10_000_000_000));
    let short = Duration::from_micros(1 + numbers.below(2_000));
    let milli = Duration::from_millis(10);
    numbers.of(&[
        SECOND,
        SECOND,
        MINUTE,
        HOUR,
        DAY,
        7 * DAY,
        MAX_PERIOD,
        milli,
        any,
        short,
    ])
}

fn limit(numbers: &mut Numbers) -> u64 {
    let any = 1 + numbers.below(1_000_000);
    let large = 1 + numbers.below(MAX_UNITS);
    let small = 1 + numbers.below(12);
    numbers.of(&[
        small,
        small,
        small,
        7,
        10,
        60,
        997,
        999_983,
        1_000_000,
        u64::from(u32::MAX),
        any,
        large,
    ])
}

/// A block whose times are about a period.
fn block(period: Duration, numbers: &mut Numbers) -> Block {
    let mut time = || {
        let share = 1 + numbers.below(300) as u32;
        (period / 100 * share).clamp(Duration::from_micros(1), MAX_PERIOD)
    };
    let micros = |time: Duration| Duration::from_micros(time.as_micros() as u64);
    let (within, forget) = (micros(time()), micros(time()));
    let mut times = [time(), time(), time()].map(micros);
    times.sort_unstable();
    let block = Block::after(1 + numbers.below(4) as u32);
    let block = block.within(within).forget_after(forget);
    let block = block.for_each(times.into_iter().take(1 + numbers.below(3) as usize));
    match numbers.one_in(3) {
        true => block.count_settled(),
        false => block,
    }
}

/// A valid rule set, with a rule for each range.
pub(crate) fn rule_set(
    ranges: &[Range],
    (modes, has_blocks, has_ids, has_credits): (bool, bool, bool, bool),
    numbers: &mut Numbers,
) -> Arc<RuleSet> {
    loop {
        // Numbers of their own, so that a seed gives the same rules with and without.
        let mut brought = Numbers(numbers.0 ^ 0x5555);
        let mut blocks = Numbers(numbers.0 ^ 0x7777);
        let mut ids = Numbers(numbers.0 ^ 0x9999);
        let mut credits = Numbers(numbers.0 ^ 0x3333);
        let rules: Vec<Rule> = ranges
            .iter()
            .enumerate()
            .map(|(place, range)| {
                let quota = range.quota(numbers);
                let mut rule = Rule::new(format!("rule-{place}"), quota);
                for plan in 0..numbers.of(&[0, 0, 1, 3]) {
                    let quota = if numbers.one_in(8) {
                        Quota::unlimited()
                    } else {
                        range.quota(numbers)
                    };
                    rule = rule.plan(format!("plan-{plan}"), quota);
                }
                if numbers.one_in(4) {
                    rule = rule.threshold(
                        format!("threshold-{place}"),
                        range.threshold(&quota, numbers),
                    );
                }
                if brought.one_in(2) {
                    rule = rule.variable_quota();
                }
                if range.family == Family::Queue
                    && let Some(at_most) = range.wait(&quota, numbers)
                {
                    rule = rule.wait(at_most);
                }
                if range.debt > 0 {
                    rule = rule.debt(range.debt);
                }
                if has_blocks && blocks.one_in(2) {
                    rule = rule.block(block(range.period, &mut blocks));
                }
                if has_ids && rule.at_most_wait().is_none() {
                    let share = 1 + ids.below(300) as u32;
                    let period =
                        (range.period / 100 * share).clamp(Duration::from_micros(1), MAX_PERIOD);
                    let period = Duration::from_micros(period.as_micros() as u64);
                    rule = rule.idempotent(period).free_repeats(1 + ids.below(3) as u8);
                }
                if has_credits && credits.below(4) > 0 && rule.at_most_wait().is_none() {
                    rule = rule.credits();
                }
                match numbers.below(8) {
                    0 | 1 if modes => rule.shadow(),
                    2 if modes && numbers.one_in(3) => rule.off(),
                    _ => rule,
                }
            })
            .collect();
        if let Ok(rules) = RuleSet::new(rules) {
            for (rule, range) in rules.given().iter().zip(ranges) {
                // Some are of another period, and refused.
                let quotas = [0; 4].map(|_| rule.quota_for(range.quota(&mut brought)));
                drop(quotas);
            }
            return Arc::new(rules);
        }
    }
}
