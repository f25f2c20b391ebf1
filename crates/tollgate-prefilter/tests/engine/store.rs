//! The store: the state of the first rule, and what a query does to it.

use tollgate_core::{Check, Decision, Retry, Source, Tick, Verdict, algorithm::Assessment};
use tollgate_prefilter::{Counted, LeaseItem, LeaseQuery, LeaseReply, Reply, ReturnedLease};
use tollgate_test_reference::LimitState;

/// What the store would say of `cost` units.
pub(crate) fn assess(store: &LimitState, now: Tick, cost: u64) -> Assessment {
    store.clone().acquire(now, cost, &LeaseQuery::default()).0
}

/// A lease comes back.
pub(crate) fn take_back(store: &mut LimitState, now: Tick, returned: ReturnedLease) {
    let query = LeaseQuery::default().with_returned(Some(returned));
    let _ = store.acquire(now, 0, &query);
}

/// What the store says of a check.
pub(crate) fn verdict(check: &Check, answer: Assessment) -> Verdict {
    Verdict::new(check.rule(), 0, answer, Source::Store)
}

/// The answer of a rule that the world decides about.
pub(crate) fn by_decree(is_denied: bool) -> Assessment {
    Assessment::new(
        !is_denied,
        u64::from(!is_denied) * 100,
        1_000,
        match is_denied {
            true => Retry::Unknown,
            false => Retry::Now,
        },
    )
}

/// The store carries out a query, as one step. The reply, and the units of the first rule that were taken and granted.
pub(crate) fn carry_out(
    store: &mut LimitState,
    now: Tick,
    (checks, reports, leases): (&[Check], &[Check], &[LeaseItem]),
    is_denied: bool,
) -> (Reply, u64, u64) {
    for item in leases {
        if let Some(returned) = item.query.returned {
            take_back(store, now, returned);
        }
    }
    let reports = reports.iter().map(|report| {
        store.take(now, report.cost());
        let answer = assess(store, now, 0);
        Ok(Counted {
            left: answer.remaining,
            reset_after: answer.reset_after,
        })
    });
    let reports: Vec<_> = reports.collect();
    let answer = |check: &Check| match check.rule() {
        0 => assess(store, now, check.cost()),
        _ => by_decree(is_denied),
    };
    let mut answers: Vec<_> = checks.iter().map(answer).collect();
    let (mut taken, mut grant) = (0, None);
    let is_alone = checks.len() == 1;
    if is_alone || answers.iter().all(|answer| answer.fits) {
        for (check, answer) in checks.iter().zip(&mut answers) {
            if check.rule() != 0 {
                continue;
            }
            let wanted = leases
                .first()
                .map_or(LeaseQuery::default(), |item| item.query.with_returned(None));
            (*answer, grant) = store.acquire(now, check.cost(), &wanted);
            taken = u64::from(answer.fits) * check.cost();
        }
    }
    let verdicts = checks.iter().zip(answers);
    let verdicts = verdicts.map(|(check, answer)| verdict(check, answer));
    let granted = grant.map_or(0, |grant| grant.units());
    let leases = leases.iter().map(|_| LeaseReply {
        is_refused: false,
        grant: Ok(grant),
    });
    let mut reply = Reply::new(Decision::new(now, verdicts, |_| true));
    (reply.reports, reply.leases) = (reports.into(), leases.collect());
    (reply, taken, granted)
}
