//! What a process is told to do.

use std::{fmt, str::FromStr, time::Duration};

use tollgate_core::{Consistency, LeaseShare, Limiter, OnStoreError, Quota, Rule};
use tollgate_redis::RedisStore;

/// One rule of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) name: String,
    pub(crate) limit: Limit,
    pub(crate) consistency: Consistency,
    /// Each request costs from one to so many units.
    pub(crate) costs: u64,
}

/// A quota, as it is written in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Bucket {
        burst: u64,
        rate: u64,
        period: Duration,
    },
    Fixed(u64, Duration),
    Sliding(u64, Duration),
}

/// So many tasks, for a time; each asks a few times without a pause, and pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) asks: Vec<Ask>,
    pub(crate) lasts: Duration,
    pub(crate) tasks: u64,
    pub(crate) at_once: u64,
    pub(crate) pause: Duration,
    /// Clients, of which each request is from any one.
    pub(crate) keys: u64,
    /// Each request is from a client that was never seen before.
    pub(crate) cold: bool,
}

pub(crate) const EXACT: Consistency = Consistency::Exact;
pub(crate) const LEASED: Consistency = Consistency::Leased {
    share: LeaseShare::percent(10),
};

pub(crate) fn eventual(max_unreported: u64) -> Consistency {
    Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported,
    }
}

pub(crate) fn bucket(burst: u64, rate: u64, period: Duration) -> Limit {
    Limit::Bucket {
        burst,
        rate,
        period,
    }
}

impl Limit {
    pub(crate) fn quota(self) -> Quota {
        match self {
            Self::Bucket {
                burst,
                rate,
                period,
            } => Quota::token_bucket(burst).refill(rate, period),
            Self::Fixed(limit, window) => Quota::fixed_window(limit, window),
            Self::Sliding(limit, window) => Quota::sliding_window(limit, window),
        }
    }
}

impl Ask {
    pub(crate) fn new(name: &str, limit: Limit, consistency: Consistency) -> Self {
        Self {
            name: name.to_owned(),
            limit,
            consistency,
            costs: 1,
        }
    }

    pub(crate) fn costing_up_to(mut self, units: u64) -> Self {
        self.costs = units;
        self
    }

    pub(crate) fn rule(&self) -> Rule {
        Rule::new(&*self.name, self.limit.quota())
            .consistency(self.consistency)
            .on_store_error(OnStoreError::Deny)
    }
}

impl Job {
    /// One client, two tasks, one request at a time with 2 ms in between.
    pub(crate) fn new(asks: impl IntoIterator<Item = Ask>, lasts: Duration) -> Self {
        Self {
            asks: asks.into_iter().collect(),
            lasts,
            tasks: 2,
            at_once: 1,
            pause: Duration::from_millis(2),
            keys: 1,
            cold: false,
        }
    }

    pub(crate) fn limiter(&self, store: &RedisStore) -> Limiter {
        Limiter::new(store.clone(), self.asks.iter().map(Ask::rule)).expect("the rules are valid")
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lasts, pause) = (self.lasts.as_micros(), self.pause.as_micros());
        let cold = u8::from(self.cold);
        write!(
            f,
            "{lasts} {} {} {pause} {} {cold}",
            self.tasks, self.at_once, self.keys
        )?;
        for ask in &self.asks {
            let (kind, limit, rate, period) = match ask.limit {
                Limit::Bucket {
                    burst,
                    rate,
                    period,
                } => (0, burst, rate, period),
                Limit::Fixed(limit, window) => (1, limit, 0, window),
                Limit::Sliding(limit, window) => (2, limit, 0, window),
            };
            let (how, one, other) = match ask.consistency {
                Consistency::Leased { share } => (1, share.as_permille().into(), 0),
                Consistency::Eventual {
                    interval,
                    max_unreported,
                } => (2, interval.as_micros(), max_unreported),
                _ => (0, 0, 0),
            };
            let (name, costs, period) = (&ask.name, ask.costs, period.as_micros());
            write!(
                f,
                " {name},{kind},{limit},{rate},{period},{how},{one},{other},{costs}"
            )?;
        }
        Ok(())
    }
}

impl FromStr for Job {
    type Err = std::num::ParseIntError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap_or_default().parse::<u64>();
        let lasts = Duration::from_micros(number()?);
        let (tasks, at_once) = (number()?, number()?);
        let pause = Duration::from_micros(number()?);
        let (keys, cold) = (number()?, number()? == 1);
        Ok(Self {
            lasts,
            tasks,
            at_once,
            pause,
            keys,
            cold,
            asks: words.map(ask).collect::<Result<_, _>>()?,
        })
    }
}

fn ask(word: &str) -> Result<Ask, std::num::ParseIntError> {
    let (name, numbers) = word.split_once(',').unwrap_or_default();
    let numbers: Vec<u64> = numbers
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [kind, limit, rate, period, how, one, other, costs] = numbers[..] else {
        panic!("{word:?} is not a rule of a job");
    };
    let period = Duration::from_micros(period);
    Ok(Ask {
        name: name.to_owned(),
        limit: match kind {
            0 => bucket(limit, rate, period),
            1 => Limit::Fixed(limit, period),
            _ => Limit::Sliding(limit, period),
        },
        consistency: match how {
            0 => Consistency::Exact,
            1 => Consistency::Leased {
                share: LeaseShare::permille(one as u16),
            },
            _ => Consistency::Eventual {
                interval: Duration::from_micros(one),
                max_unreported: other,
            },
        },
        costs,
    })
}
