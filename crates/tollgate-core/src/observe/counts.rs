//! What a stripe of threads has counted of a rule and not yet published.

use crate::observe::series::{COUNT, Series};

/// What is counted of a rule without its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Event {
    NearLimit,
    BurstExhausted,
    HotKey,
    /// A shadow would have denied an allowed request.
    DiffersAllowed,
    DiffersDenied,
    StoreFailure,
    FallbackAllowed,
    FallbackDenied,
    FallbackPassed,
    FallbackRefused,
    FallbackUnits,
    /// The same by the answer of a check's own policy.
    PassedByAllow,
    PassedByDegraded,
    RefusedByDeny,
}

pub(super) const EVENTS: usize = 14;

/// The plans that have a label of their own; the rule's own quota is the first.
pub(super) const PLANS: usize = 64;
/// The place of quotas that checks bring along, and that of further plans.
pub(super) const COMPUTED: usize = PLANS;
pub(super) const OTHER: usize = PLANS + 1;

/// Counts that are added to the metrics from time to time.
#[derive(Debug)]
pub(super) struct Counts {
    events: [u64; EVENTS],
    own: OfPlan,
    others: Vec<Option<Box<OfPlan>>>,
}

#[derive(Debug)]
struct OfPlan {
    requests: [u64; COUNT],
    units_allowed: u64,
    units_denied: u64,
    /// The series that were published before.
    published: u128,
}

/// What was counted of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Requests(Series),
    UnitsAllowed,
    UnitsDenied,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            events: [0; EVENTS],
            own: OfPlan::new(),
            others: Vec::new(),
        }
    }
}

impl Counts {
    /// Counts a request. Whether it is the first of its series, which has to be published at once.
    #[inline]
    pub(super) fn request(&mut self, plan: usize, series: Series) -> bool {
        let of_plan = self.of_plan(plan);
        of_plan.requests[series.place()] += 1;
        of_plan.published & (1 << series.place()) == 0
    }

    /// Counts requests of one unit that were decided by the rule's own quota.
    pub(super) fn plain(&mut self, series: Series, is_allowed: bool, times: u64) {
        self.own.requests[series.place()] += times;
        self.units(0, times, is_allowed);
    }

    /// Whether the series of such requests was published.
    pub(super) fn has_published_plain(&self, series: Series) -> bool {
        self.own.published & (1 << series.place()) != 0
    }

    #[inline]
    pub(super) fn units(&mut self, plan: usize, cost: u64, allowed: bool) {
        let of_plan = self.of_plan(plan);
        let units = match allowed {
            true => &mut of_plan.units_allowed,
            false => &mut of_plan.units_denied,
        };
        *units = units.saturating_add(cost);
    }

    #[inline]
    pub(super) fn event(&mut self, event: Event, times: u64) {
        let count = &mut self.events[event as usize];
        *count = count.saturating_add(times);
    }

    #[inline]
    fn of_plan(&mut self, plan: usize) -> &mut OfPlan {
        if plan == 0 {
            return &mut self.own;
        }
        self.of_other_plan(plan)
    }

    #[inline(never)]
    fn of_other_plan(&mut self, plan: usize) -> &mut OfPlan {
        if self.others.len() < plan {
            self.others.resize_with(plan, || None);
        }
        self.others[plan - 1].get_or_insert_with(|| Box::new(OfPlan::new()))
    }

    /// Takes out all that was counted.
    pub(super) fn take(
        &mut self,
        mut event: impl FnMut(usize, u64),
        mut counted: impl FnMut(usize, Counted, u64),
    ) {
        for (index, count) in self.events.iter_mut().enumerate() {
            if *count > 0 {
                event(index, std::mem::take(count));
            }
        }
        self.own.take(|what, count| counted(0, what, count));
        let others = self.others.iter_mut().enumerate();
        for (index, of_plan) in others.filter_map(|(i, plan)| Some((i, plan.as_mut()?))) {
            of_plan.take(|what, count| counted(index + 1, what, count));
        }
    }
}

impl OfPlan {
    const fn new() -> Self {
        Self {
            requests: [0; COUNT],
            units_allowed: 0,
            units_denied: 0,
            published: 0,
        }
    }

    fn take(&mut self, mut counted: impl FnMut(Counted, u64)) {
        for (place, count) in self.requests.iter_mut().enumerate() {
            if *count > 0 {
                self.published |= 1 << place;
                counted(Counted::Requests(Series::at(place)), std::mem::take(count));
            }
        }
        for (units, what) in [
            (&mut self.units_allowed, Counted::UnitsAllowed),
            (&mut self.units_denied, Counted::UnitsDenied),
        ] {
            if *units > 0 {
                counted(what, std::mem::take(units));
            }
        }
    }
}
