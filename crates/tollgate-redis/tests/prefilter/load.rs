//! What a process is told to do, and consistencies of rules.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_core::{Consistency, LeaseShare, Limiter, OnStoreError, Quota, Rule, SECOND};
use tollgate_redis::RedisStore;

pub(crate) const LEASED: Consistency = Consistency::Leased {
    share: LeaseShare::percent(10),
};

pub(crate) fn eventual(max_unreported: u64) -> Consistency {
    Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported,
    }
}

/// How the rule of a job counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Exact,
    Leased,
    Eventual,
}

/// What a process of the rule [`Kind::Eventual`] may keep back.
const UNREPORTED: u64 = 20;

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Exact, Self::Leased, Self::Eventual];

    fn consistency(self) -> Consistency {
        match self {
            Self::Exact => Consistency::Exact,
            Self::Leased => LEASED,
            Self::Eventual => eventual(UNREPORTED),
        }
    }

    /// Units that a process may let through beyond the limit.
    pub(crate) fn unreported(self) -> u64 {
        match self {
            Self::Eventual => UNREPORTED,
            _ => 0,
        }
    }
}

/// Requests of one client from two tasks, for more than it may have, until the job is ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) kind: Kind,
    /// Units at once, and as many a second.
    pub(crate) burst: u64,
    /// What a task waits after each request.
    pub(crate) pause: Duration,
}

impl Load {
    pub(crate) fn quota(&self) -> Quota {
        Quota::token_bucket(self.burst).refill(self.burst, SECOND)
    }

    pub(crate) fn limiter(&self, store: &RedisStore) -> Limiter {
        let rule = Rule::new(format!("{:?}-{}", self.kind, self.burst), self.quota())
            .consistency(self.kind.consistency())
            .on_store_error(OnStoreError::Deny);
        Limiter::new(store.clone(), [rule]).expect("the rule is valid")
    }
}
