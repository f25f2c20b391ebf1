//! The store: a state of each rule, and what a query does to them.

use tollgate_core::{
    Check, Decision, Quota, Retry, Source, Tick, Verdict,
    algorithm::{Algorithm, Assessment, FixedWindow, Gcra, SlidingWindow, Taken},
};
use tollgate_prefilter::{
    Grant, GrantReply, LeaseItem, LeaseQuery, LeaseReply, LeaseTerms, Reply, ReportReply,
    ReturnedLease,
};
use tollgate_test_reference::{
    BucketGrantor, BucketState, WindowGrantor, WindowState, lease_terms,
};

/// The state of a rule.
pub(crate) enum State {
    Bucket(Box<Bucket>),
    Fixed(Window<FixedWindow>),
    Sliding(Window<SlidingWindow>),
}

pub(crate) struct Bucket {
    quota: Gcra,
    grantor: BucketGrantor,
    state: BucketState,
}

pub(crate) struct Window<A: Algorithm> {
    quota: A,
    grantor: WindowGrantor<A>,
    state: WindowState<A::State>,
}

impl State {
    pub(crate) fn new(quota: &Quota, terms: Option<LeaseTerms>) -> Self {
        if let Some(bucket) = Gcra::new(quota) {
            let terms = terms.unwrap_or(lease_terms(0, 1, 4, 2));
            return Self::Bucket(Box::new(Bucket {
                quota: bucket,
                grantor: BucketGrantor::new(quota, terms).expect("a bucket"),
                state: BucketState::default(),
            }));
        }
        let length = quota.period().as_micros() as u64;
        let terms = terms.unwrap_or(LeaseTerms {
            window: Some(length),
            ..lease_terms(0, 1, 4, 2)
        });
        if let Some(window) = Window::new(quota, &terms) {
            return Self::Fixed(window);
        }
        Self::Sliding(Window::new(quota, &terms).expect("a window"))
    }

    pub(crate) fn acquire(
        &mut self,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (Assessment, Option<Grant>) {
        match self {
            Self::Bucket(it) => it.grantor.acquire(&mut it.state, now, cost, query),
            Self::Fixed(it) => it.grantor.acquire(&mut it.state, now, cost, query),
            Self::Sliding(it) => it.grantor.acquire(&mut it.state, now, cost, query),
        }
    }

    pub(crate) fn assess(&self, now: Tick, cost: u64) -> Assessment {
        let nothing = LeaseQuery::default();
        let (answer, _) = match self {
            Self::Bucket(it) => it
                .grantor
                .acquire(&mut it.state.clone(), now, cost, &nothing),
            Self::Fixed(it) => it
                .grantor
                .acquire(&mut it.state.clone(), now, cost, &nothing),
            Self::Sliding(it) => it
                .grantor
                .acquire(&mut it.state.clone(), now, cost, &nothing),
        };
        answer
    }

    /// A lease comes back.
    pub(crate) fn take_back(&mut self, now: Tick, returned: ReturnedLease) {
        let query = LeaseQuery::default().with_returned(Some(returned));
        let _ = self.acquire(now, 0, &query);
    }

    /// Takes units, whether they are left or not.
    pub(crate) fn take(&mut self, now: Tick, units: u64) {
        match self {
            Self::Bucket(it) => it.quota.take(&mut it.state.arrival, now, units),
            Self::Fixed(it) => it.quota.take(&mut it.state.counts, now, units),
            Self::Sliding(it) => it.quota.take(&mut it.state.counts, now, units),
        }
    }

    pub(crate) fn refund(&mut self, now: Tick, taken: Taken, units: u64) {
        match self {
            Self::Bucket(it) => it.quota.refund(&mut it.state.arrival, now, taken, units),
            Self::Fixed(it) => it.quota.refund(&mut it.state.counts, now, taken, units),
            Self::Sliding(it) => it.quota.refund(&mut it.state.counts, now, taken, units),
        }
    }

    pub(crate) fn reset(&mut self, now: Tick) {
        match self {
            Self::Bucket(it) => it.grantor.reset(&mut it.state, now),
            Self::Fixed(it) => it.grantor.reset(&mut it.state, now),
            Self::Sliding(it) => it.grantor.reset(&mut it.state, now),
        }
    }

    /// The units of a window, and of the one before where it slides, that are counted.
    pub(crate) fn counted(&self, now: Tick) -> u64 {
        fn of<A: Algorithm>(window: &Window<A>, now: Tick) -> u64 {
            let mut counts = window.state.counts.clone();
            let (before, left) = (A::weight(&counts), window.quota.assess(&counts, now, 0));
            // A unit more: what is over is forgotten by who takes. A window that is full counts no more.
            window.quota.take(&mut counts, now, 1);
            match A::weight(&counts) {
                after if after == before && left.remaining == 0 => before,
                after => after - 1,
            }
        }
        match self {
            Self::Bucket(_) => 0,
            Self::Fixed(window) => of(window, now),
            Self::Sliding(window) => of(window, now),
        }
    }
}

impl<A: Algorithm> Window<A> {
    fn new(quota: &Quota, terms: &LeaseTerms) -> Option<Self> {
        Some(Self {
            quota: A::new(quota)?,
            grantor: WindowGrantor::new(A::new(quota)?, terms)?,
            state: WindowState::default(),
        })
    }
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
    store: &mut State,
    now: Tick,
    (checks, reports, leases): (&[Check], &[Check], &[LeaseItem]),
    is_denied: bool,
) -> (Reply, u64, u64) {
    for item in leases {
        if let Some(returned) = item.query.returned {
            store.take_back(now, returned);
        }
    }
    let reports = reports.iter().map(|report| {
        store.take(now, report.cost());
        let answer = store.assess(now, 0);
        ReportReply::Counted {
            left: answer.remaining,
            reset_after: answer.reset_after,
        }
    });
    let reports: Vec<_> = reports.collect();
    let answer = |check: &Check| match check.rule() {
        0 => store.assess(now, check.cost()),
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
    let lease = grant.map_or(GrantReply::None, GrantReply::Granted);
    let granted = grant.map_or(0, |grant| grant.units());
    let leases = leases.iter().map(|_| LeaseReply {
        is_refused: false,
        grant: lease,
    });
    let mut reply = Reply::new(now, Decision::new(now, verdicts, |_| true));
    (reply.reports, reply.leases) = (reports.into(), leases.collect());
    (reply, taken, granted)
}
