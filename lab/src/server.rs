//! The virtual store.

use std::collections::HashMap;

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Retry, Source, Tick, Verdict,
    algorithm::Assessment,
    store::{Fingerprint, Settlement},
};
use tollgate_prefilter::{Counted, LeaseItem, LeaseQuery, LeaseReply, Reply};
use tollgate_test_reference::LimitState;

use crate::{consistency::Terms, engine::Content};

/// One state for each key. It decides in no time, and one query after the other.
#[derive(Debug)]
pub(crate) struct Server {
    fresh: LimitState,
    limit: u64,
    states: HashMap<Fingerprint, LimitState>,
}

impl Server {
    /// `None` if the quota is neither a bucket nor a window of counters.
    pub(crate) fn new(terms: &Terms) -> Option<Self> {
        Some(Self {
            fresh: LimitState::new(&terms.quota, terms.lease)?,
            limit: terms.quota.limit(),
            states: HashMap::new(),
        })
    }

    fn state(&mut self, key: Fingerprint) -> &mut LimitState {
        self.states.entry(key).or_insert_with(|| self.fresh.clone())
    }

    /// Carries out what the engine of a process sends, as one step. The reply, unless no process waits for it.
    pub(crate) fn carry_out(&mut self, now: Tick, content: &Content) -> Option<Reply> {
        let (checks, reports, leases) = match content {
            Content::Settle(receipt, how) => {
                let units = match how {
                    Settlement::Refund(units) => *units,
                    _ => receipt.check.cost(),
                };
                let state = self.state(receipt.check.key());
                state.refund(now, receipt.taken, units);
                return None;
            }
            Content::Query {
                checks,
                reports,
                leases,
            } => (checks, reports, leases),
        };
        for LeaseItem { check, query, .. } in leases {
            let back = LeaseQuery::default().with_returned(query.returned);
            self.state(check.key()).acquire(now, 0, &back);
        }
        let report = |report: &Check| {
            self.report(report.key(), now, report.cost());
            let nothing = LeaseQuery::default();
            let (answer, _) = self.state(report.key()).acquire(now, 0, &nothing);
            Ok(Counted {
                left: answer.remaining,
                reset_after: answer.reset_after,
            })
        };
        let reports: Vec<_> = reports.iter().map(report).collect();
        let is_denied = checks.iter().any(|check| check.rule() != 0);
        // What the other rule denies once it need not deny again.
        let shared = 0..if is_denied { checks.len() } else { 0 };
        let mut grant = None;
        let mut verdicts = SmallVec::<[Verdict; 2]>::new();
        for check in checks {
            if check.rule() != 0 {
                let denied = Assessment::new(false, 0, 0, Retry::Unknown);
                verdicts.push(Verdict::new(check.rule(), 0, denied, Source::Store));
                continue;
            }
            let wanted = leases.first().map(|item| item.query.with_returned(None));
            let (cost, wanted) = match is_denied {
                true => (0, LeaseQuery::default()),
                false => (check.cost(), wanted.unwrap_or_default()),
            };
            let (answer, granted) = self.state(check.key()).acquire(now, cost, &wanted);
            verdicts.push(Verdict::new(0, 0, answer, Source::Store));
            grant = granted;
        }
        let mut reply = Reply::new(Decision::new(now, verdicts, |_| true));
        reply.shared = shared.collect();
        let leases = leases.iter().map(|_| LeaseReply {
            is_refused: false,
            grant: Ok(grant),
        });
        (reply.reports, reply.leases) = (reports.into_iter().collect(), leases.collect());
        Some(reply)
    }

    /// Only buckets are counted locally here.
    fn report(&mut self, key: Fingerprint, now: Tick, mut units: u64) {
        let limit = self.limit;
        let state = self.state(key);
        while units > 0 {
            let some = units.min(limit);
            state.take(now, some);
            units -= some;
        }
    }

    /// The units of a key that are on lease.
    pub(crate) fn on_lease(&self, key: Fingerprint) -> u64 {
        self.states.get(&key).map_or(0, LimitState::on_lease)
    }
}
