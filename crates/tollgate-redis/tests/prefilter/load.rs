//! What a process is told to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{Consistency, LeaseShare, Limiter, OnStoreError, Quota, Rule};
use tollgate_redis::RedisStore;

/// One rule of each request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleLoad {
    pub(crate) name: String,
    pub(crate) limit: Limit,
    #[serde(with = "as_numbers")]
    pub(crate) consistency: Consistency,
    /// Each request costs from one to so many units.
    pub(crate) costs: u64,
}

/// A quota, as it is written in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) rule_loads: Vec<RuleLoad>,
    pub(crate) lasts: Duration,
    pub(crate) tasks: u64,
    pub(crate) at_once: u64,
    pub(crate) pause: Duration,
    /// How many clients there are. Each request is from a random one.
    pub(crate) keys: u64,
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

impl RuleLoad {
    pub(crate) fn new(name: &str, limit: Limit, consistency: Consistency) -> Self {
        Self {
            name: name.to_owned(),
            limit,
            consistency,
            costs: 1,
        }
    }

    pub(crate) fn rule(&self) -> Rule {
        Rule::new(&*self.name, self.limit.quota())
            .consistency(self.consistency)
            .on_store_error(OnStoreError::Deny)
    }
}

impl Load {
    /// One client, two tasks, one request at a time with 2 ms in between.
    pub(crate) fn new(rule_loads: impl IntoIterator<Item = RuleLoad>, lasts: Duration) -> Self {
        Self {
            rule_loads: rule_loads.into_iter().collect(),
            lasts,
            tasks: 2,
            at_once: 1,
            pause: Duration::from_millis(2),
            keys: 1,
        }
    }

    pub(crate) fn limiter(&self, store: &RedisStore) -> Limiter {
        Limiter::new(store.clone(), self.rule_loads.iter().map(RuleLoad::rule))
            .expect("the rules are valid")
    }
}

/// A consistency, as three numbers.
mod as_numbers {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use tollgate_core::{Consistency, LeaseShare};

    pub(super) fn serialize<S: Serializer>(it: &Consistency, to: S) -> Result<S::Ok, S::Error> {
        let numbers = match *it {
            Consistency::Leased { share } => (1, share.as_permille(), 0),
            Consistency::Eventual {
                interval,
                max_unreported,
            } => (2, interval.as_millis() as u16, max_unreported),
            _ => (0, 0, 0),
        };
        numbers.serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Consistency, D::Error> {
        Ok(match <(u8, u16, u64)>::deserialize(from)? {
            (0, ..) => Consistency::Exact,
            (1, permille, _) => Consistency::Leased {
                share: LeaseShare::permille(permille),
            },
            (_, millis, max_unreported) => Consistency::Eventual {
                interval: Duration::from_millis(millis.into()),
                max_unreported,
            },
        })
    }
}
