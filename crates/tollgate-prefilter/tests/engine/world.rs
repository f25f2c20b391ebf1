//! What is explored.

use tollgate_core::{
    Check, Consistency, LeaseShare, MINUTE, Quota, Rule, Tick,
    store::{Fingerprint, Hold, Settlement},
};
use tollgate_prefilter::{LeaseItem, Places, Query, Reply, ReturnedLease};

/// The length of all windows, in µs.
pub(crate) const LENGTH: Tick = 60_000_000;

/// One thing to explore.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The limit that is looked at.
    pub(crate) quota: Quota,
    pub(crate) consistency: Consistency,
    /// Whether each request is checked by another rule too, and where its state lies.
    pub(crate) other: Other,
    pub(crate) processes: usize,
    /// How many requests come, and what each may cost.
    pub(crate) requests: usize,
    pub(crate) costs: &'static [u64],
    /// How many events happen besides requests, queries and replies, and their kinds.
    pub(crate) extras: usize,
    pub(crate) kinds: &'static [Kind],
}

/// Another rule of the same request. The world tries both of its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    None,
    /// Decided in one step with the first.
    Together,
    /// Decided before it, in a place of its own.
    Before,
    /// Decided after it, in a place of its own.
    After,
    /// Decided in one step with the first, after a third rule in a place of its own.
    TogetherAfterAThird,
}

/// Kinds of events that only happen now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No reply to a query is waited for any more. It is still carried out, or is lost.
    GiveUp,
    /// The same, by dropping it.
    Drop,
    /// A query certainly did not run.
    NotRun,
    /// The caller of a request goes away.
    Abandon,
    /// The ticket of an admitted request is cancelled.
    Cancel,
    /// A unit more is charged to a ticket.
    Charge,
    /// The key is reset.
    Reset,
    /// Maintenance is polled.
    Maintain,
    /// The rule set is replaced by an equal one.
    Replace,
    /// The rule set is replaced by one without the rule.
    Remove,
    /// So many µs pass.
    Pass(Tick),
}

impl World {
    /// One process and one limit. Half of the limit may be on lease.
    pub(crate) fn leased(quota: Quota, kinds: &'static [Kind]) -> Self {
        Self {
            quota,
            consistency: Consistency::Leased {
                share: LeaseShare::percent(50),
            },
            other: Other::None,
            processes: 1,
            requests: 2,
            costs: &[1, 4],
            extras: 2,
            kinds,
        }
    }

    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.consistency, Consistency::Leased { .. })
    }

    pub(crate) fn is_window(&self) -> bool {
        tollgate_core::algorithm::Algorithm::new(&self.quota)
            .is_none_or(|_: tollgate_core::algorithm::Gcra| false)
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Whether a window may end while units are on their way.
    pub(crate) fn turns(&self) -> bool {
        let is_long = |kind: &Kind| matches!(kind, Kind::Pass(time) if *time >= LENGTH / 2);
        self.kinds.iter().any(is_long)
    }

    pub(crate) fn rules(&self) -> Vec<Rule> {
        let mut rules = vec![Rule::new("limit", self.quota).consistency(self.consistency)];
        if self.other != Other::None {
            rules.push(Rule::new("other", Quota::gcra(1_000, MINUTE)));
        }
        if self.other == Other::TogetherAfterAThird {
            rules.push(Rule::new("third", Quota::gcra(1_000, MINUTE)));
        }
        rules
    }

    pub(crate) fn checks(&self, cost: u64) -> Vec<Check> {
        let (first, other) = (Check::new(0, KEY, cost), Check::new(1, OTHER_KEY, 1));
        match self.other {
            Other::None => vec![first],
            Other::Before => vec![other, first],
            Other::Together | Other::After => vec![first, other],
            Other::TogetherAfterAThird => {
                vec![Check::new(2, OTHER_KEY, 1), first, Check::new(1, KEY, 1)]
            }
        }
    }

    pub(crate) fn places(&self) -> Places {
        Places {
            are_several: !matches!(self.other, Other::None | Other::Together),
            with: None,
        }
    }
}

/// Fingerprints are evenly spread.
const KEY: Fingerprint = Fingerprint::from_bits(0x3c6e_f372_fe94_f82b_a54f_f53a_5f1d_36f1);
const OTHER_KEY: Fingerprint = Fingerprint::from_bits(0x9b05_688c_2b3e_6c1f_1f83_d9ab_fb41_bd6b);

// What may happen next.

/// An event. Messages, processes and requests by their number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Begin(usize, u64),
    /// Whether the other rule denies.
    Execute(usize, bool),
    Deliver(usize),
    Vanish(usize),
    GiveUp(usize),
    Drop(usize),
    NotRun(usize),
    Abandon(usize),
    Cancel(usize),
    Charge(usize),
    Reset(usize),
    Maintain(usize),
    Replace(usize),
    Remove(usize),
    Pass(Tick),
}

// A request, from when it begins.

/// A request, from when it begins.
pub(crate) struct Request {
    pub(crate) process: usize,
    pub(crate) bound: usize,
    pub(crate) checks: Vec<Check>,
    /// In the store's time: when it came, and when the store decided the first rule.
    pub(crate) began: Tick,
    pub(crate) decided: Tick,
    pub(crate) is_of_before: bool,
    /// What the store has taken for it in an earlier step.
    pub(crate) taken_before: u64,
    /// What a ticket would be for.
    pub(crate) taken: Vec<Hold>,
    pub(crate) is_admitted: bool,
    pub(crate) is_settled: bool,
}

// What is on its way to the store, or back.

/// What is on its way to the store, or back.
pub(crate) struct Message {
    pub(crate) process: usize,
    pub(crate) bound: usize,
    pub(crate) content: Content,
    /// Which process hears the reply.
    pub(crate) waits: Waits,
    pub(crate) request: Option<usize>,
    pub(crate) is_abandoned: bool,
    pub(crate) reply: Option<Reply>,
    pub(crate) is_executed: bool,
    /// What is lost if the reply is.
    pub(crate) taken: u64,
    pub(crate) granted: u64,
    pub(crate) executed: Tick,
}

pub(crate) enum Waits {
    NoProcess,
    Query(Box<Query>),
    Reset(Box<Query>),
}

pub(crate) enum Content {
    Query {
        checks: Vec<Check>,
        reports: Vec<Check>,
        leases: Vec<LeaseItem>,
    },
    Settle(Hold, Settlement),
    /// Leases that go back, and how many unreported units the process forgets.
    Reset(Vec<ReturnedLease>, u64),
}

impl Message {
    pub(crate) fn is_query(&self) -> bool {
        matches!(self.waits, Waits::Query(_))
    }

    pub(crate) fn checks(&self, rule: u16) -> bool {
        match &self.content {
            Content::Query { checks, .. } => checks.iter().any(|check| check.rule() == rule),
            _ => false,
        }
    }
}
