//! What a limiter tells operators.

use std::{fmt, sync::Arc};

#[cfg(feature = "metrics")]
use crate::decision::Reason;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::decision::Verdict;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::rule::Mode;
use crate::{
    check::Check,
    decision::{Decision, Outcome},
    key::KeyBuf,
    observe::{
        rule_observer::RuleObserver,
        timer::Timer,
        top_keys::{Found, Hot, TopKey},
        waiting::Waiting,
    },
    rule::Rule,
    rule_set::RuleSet,
    store::rule_store::RuleStore,
    time::Tick,
};

/// What a limiter tells operators: metrics with the feature `metrics`, events with `tracing`, and the top keys of the rules
/// that [keep them](Rule::top_keys). Without any of these it does nothing.
///
/// A [`Limiter`](crate::Limiter) reports its own decisions. This is for those who make a layer of it, and know more about a
/// request: see [`Limiter::acquire_unreported`](crate::Limiter::acquire_unreported).
pub struct Observer {
    set: Arc<RuleSet>,
    rules: Box<[Arc<RuleObserver>]>,
    has_labels: bool,
    #[cfg(feature = "metrics")]
    has_top_keys: bool,
    #[cfg(feature = "tracing")]
    outage: crate::observe::outage::Outage,
    #[cfg(feature = "metrics")]
    check_duration: std::sync::OnceLock<metrics::Histogram>,
    #[cfg(feature = "metrics")]
    tables: crate::observe::table_gauges::TableGauges,
    /// How large the tables are that stand in for the store.
    #[cfg(feature = "metrics")]
    local_tables: std::sync::OnceLock<Box<SizesFn>>,
    /// The second in which the metrics were last brought up to date.
    #[cfg(feature = "metrics")]
    flushed_at: std::sync::atomic::AtomicU64,
}

/// Says how large tables are.
#[cfg(feature = "metrics")]
type SizesFn = dyn Fn() -> crate::remote::table_sizes::TableSizes + Send + Sync;

/// One request of a rule in this number is a sample.
#[cfg(feature = "metrics")]
const ONE_IN: u32 = 16;

impl Observer {
    pub(crate) fn new(set: &Arc<RuleSet>) -> Self {
        Self::of(set, None)
    }

    /// The observer of rules that take the place of others. Unchanged rules go on.
    pub(crate) fn succeeding(set: &Arc<RuleSet>, before: &Self) -> Self {
        Self::of(set, Some(before))
    }

    fn of(set: &Arc<RuleSet>, before: Option<&Self>) -> Self {
        let observer = |(index, rule): (usize, &Rule)| {
            let before = before.filter(|before| !before.rules.is_empty());
            let Some(before) = before else {
                return Arc::new(RuleObserver::new(rule));
            };
            if let Some(there) = set.unchanged_in(index, &before.set) {
                return Arc::clone(&before.rules[there]);
            }
            match set.position_in(index, &before.set) {
                Some(there) => Arc::new(RuleObserver::succeeding(rule, &before.rules[there])),
                None => Arc::new(RuleObserver::new(rule)),
            }
        };
        let rules = set.rules();
        let has_top_keys = set.has_top_keys();
        let is_on = cfg!(any(feature = "metrics", feature = "tracing")) || has_top_keys;
        let observed = rules.iter().enumerate().map(observer);
        Self {
            set: Arc::clone(set),
            rules: match is_on {
                true => observed.collect(),
                false => Box::default(),
            },
            #[cfg(feature = "metrics")]
            has_top_keys,
            has_labels: has_top_keys && rules.iter().any(Rule::has_label),
            #[cfg(feature = "tracing")]
            outage: before.map_or_else(Default::default, |before| before.outage.again()),
            #[cfg(feature = "metrics")]
            check_duration: before.map_or_else(Default::default, |b| b.check_duration.clone()),
            #[cfg(feature = "metrics")]
            tables: Default::default(),
            #[cfg(feature = "metrics")]
            local_tables: std::sync::OnceLock::new(),
            #[cfg(feature = "metrics")]
            flushed_at: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Says how large the tables are that stand in for the store. What is said first holds.
    #[cfg(feature = "metrics")]
    pub(crate) fn set_local_tables(&self, sizes: Box<SizesFn>) {
        let _: Result<(), _> = self.local_tables.set(sizes);
    }

    /// Whether it does anything.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Whether it wants to know the keys of checks.
    #[inline]
    pub(crate) fn has_labels(&self) -> bool {
        self.has_labels
    }

    /// A check was made.
    #[cold]
    pub(crate) fn on_check(&self, check: &Check, key: &KeyBuf) {
        let index = usize::from(check.rule());
        if let Some((rule, observer)) = self.rule(index)
            && rule.has_label()
            && let Some(top_keys) = observer.top_keys(|| Some(rule))
        {
            top_keys.on_check(check, key);
        }
    }

    #[inline]
    fn rule(&self, index: usize) -> Option<(&Rule, &Arc<RuleObserver>)> {
        Some((self.set.rules().get(index)?, self.rules.get(index)?))
    }

    /// The top keys of the rule at this index.
    pub(crate) fn top_keys(&self, rule: usize, most: usize) -> Vec<TopKey> {
        let observer = self.rules.get(rule);
        observer.map_or_else(Vec::new, |observer| observer.top(most))
    }

    /// A request was decided. `route` is the pattern of its route, never its path; empty where there is none. `found` is what
    /// [`find_top_key`](Self::find_top_key) has found, best before the decision.
    #[inline]
    pub(crate) fn decided(
        &self,
        store: &dyn RuleStore,
        checks: &[Check],
        decision: &Decision,
        timer: Timer,
        route: &str,
        found: Option<Found<'_>>,
    ) {
        #[cfg(feature = "metrics")]
        if self.count_plain(checks, decision) {
            self.time(timer);
            if self.has_top_keys
                && let ([check], [verdict]) = (checks, decision.verdicts())
            {
                self.record_top_key(check, found, verdict.outcome(), decision.at());
            }
            return self.flush_once_a_second(store, decision);
        }
        #[cfg(not(any(feature = "metrics", feature = "tracing")))]
        if let ([check], [verdict]) = (checks, decision.verdicts()) {
            return self.record_top_key(check, found, verdict.outcome(), decision.at());
        }
        self.decided_otherwise(store, checks, decision, timer, route);
    }

    /// Counts what most requests are: one check that passes or is denied for now, with nothing to tell but that.
    #[cfg(feature = "metrics")]
    #[inline]
    fn count_plain(&self, checks: &[Check], decision: &Decision) -> bool {
        let ([check], [verdict]) = (checks, decision.verdicts()) else {
            return false;
        };
        #[cfg(feature = "tracing")]
        if self.outage.is_on() {
            return false;
        }
        let observer = self.rules.get(verdict.rule());
        let Some(used) = observer.and_then(|observer| observer.used_before()) else {
            return false;
        };
        let counted = if decision.is_allowed() {
            used.count_plain(verdict, check.cost())
        } else if decision.reason() == Some(Reason::Quota) && !is_denial_logged() {
            used.count_plain_denial(verdict, check.cost())
        } else {
            None
        };
        let Some(is_sample) = counted else {
            return false;
        };
        if is_sample && let Some(rule) = self.set.rules().get(verdict.rule()) {
            counting::sample_remaining(rule, used, verdict);
            counting::sample_retry_after(used, verdict);
        }
        true
    }

    /// Looks for the key of a single check that is about to be decided among the top keys of its rule.
    #[inline(always)]
    pub(crate) fn find_top_key(&self, checks: &[Check]) -> Option<Found<'_>> {
        let [check] = checks else { return None };
        let observer = self.rules.get(usize::from(check.rule()))?;
        observer.top_keys_before()?.find(check)
    }

    /// Notes the key of a check whose rule keeps its top keys.
    #[inline(always)]
    fn record_top_key(&self, check: &Check, found: Option<Found<'_>>, outcome: Outcome, at: Tick) {
        let (index, is_denied) = (usize::from(check.rule()), outcome == Outcome::Deny);
        if (is_denied || outcome == Outcome::Allow)
            && let Some(observer) = self.rules.get(index)
            && let Some(top_keys) = observer.top_keys(|| self.set.rules().get(index))
            && let Some(hot) = top_keys.record(check, found, is_denied, at)
            && let Some(rule) = self.set.rules().get(index)
        {
            hot_key(rule, observer, &hot);
        }
    }

    #[inline(never)]
    fn decided_otherwise(
        &self,
        store: &dyn RuleStore,
        checks: &[Check],
        decision: &Decision,
        timer: Timer,
        route: &str,
    ) {
        #[cfg(feature = "metrics")]
        self.time(timer);
        #[cfg(not(feature = "metrics"))]
        let _ = (store, timer);
        #[cfg(not(feature = "tracing"))]
        let _ = route;
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        for (index, verdict) in decision.verdicts().iter().enumerate() {
            let Some((rule, observer)) = self.rule(verdict.rule()) else {
                continue;
            };
            let check = checks.get(index);
            let log = self.count(rule, observer, check, verdict, decision);
            #[cfg(feature = "tracing")]
            if let Some(one_in) = log {
                denied(rule, check, verdict, decision, route, one_in);
            }
            #[cfg(all(feature = "metrics", not(feature = "tracing")))]
            let _ = log;
        }
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            let found = self.find_top_key(std::slice::from_ref(check));
            self.record_top_key(check, found, verdict.outcome(), decision.at());
        }
        #[cfg(feature = "tracing")]
        self.outage(decision);
        #[cfg(feature = "metrics")]
        self.flush_once_a_second(store, decision);
    }

    /// Counts a verdict. `Some`: it is a denial to be logged, which stands for this number of denials.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    #[inline]
    fn count(
        &self,
        rule: &Rule,
        observer: &Arc<RuleObserver>,
        check: Option<&Check>,
        verdict: &Verdict,
        decision: &Decision,
    ) -> Option<u64> {
        let cost = check.map_or(0, Check::cost);
        #[cfg(feature = "metrics")]
        if decision.is_allowed()
            && let Some(used) = observer.used_before()
            && let Some(is_sample) = used.count_plain(verdict, cost)
        {
            if is_sample {
                counting::sample_remaining(rule, used, verdict);
            }
            return None;
        }
        let is_enforced = *rule.mode() == Mode::Enforce;
        #[cfg(feature = "tracing")]
        let is_logged = is_enforced && verdict.outcome() == Outcome::Deny && is_denial_logged();
        #[cfg(not(feature = "metrics"))]
        {
            let _ = cost;
            #[cfg(feature = "tracing")]
            if !is_logged {
                return None;
            }
        }
        let used = observer.used(rule);
        used.count(|stripe| {
            #[cfg(feature = "metrics")]
            let at_once = {
                let request = counting::Request {
                    is_enforced,
                    is_allowed: decision.is_allowed(),
                    reason: decision.reason(),
                    cost,
                    answer: check.and_then(|check| check.policy().store_error_answer()),
                };
                counting::count(rule, used, stripe, verdict, request)
            };
            #[cfg(not(feature = "metrics"))]
            let at_once = false;
            #[cfg(feature = "tracing")]
            let log = match is_logged {
                true => stripe.logged.log(decision.at() / 1_000_000),
                false => None,
            };
            #[cfg(not(feature = "tracing"))]
            let log = None;
            #[cfg(not(feature = "metrics"))]
            let _ = is_enforced;
            (at_once, log)
        })
    }

    /// A request with these checks begins to wait, or is turned away because it cannot.
    pub fn waiting(&self, checks: &[Check]) -> Waiting {
        Waiting::begin(&self.set, checks)
    }

    /// A rule did not apply to a request: exempt, unlimited, or without a key.
    pub fn skipped(&self, rule: u16) {
        self.unchecked(rule, Unchecked::Skipped);
    }

    /// A rule rejected a request that has no key.
    pub fn no_key(&self, rule: u16) {
        self.unchecked(rule, Unchecked::NoKey);
    }

    /// A rule rejected a request whose key could not be looked up.
    pub fn look_up_failed(&self, rule: u16) {
        self.unchecked(rule, Unchecked::LookUpFailed);
    }

    fn unchecked(&self, rule: u16, what: Unchecked) {
        #[cfg(feature = "metrics")]
        if let Some((rule, observer)) = self.rule(usize::from(rule)) {
            use crate::observe::series::{Kind, Series};
            let kind = match what {
                Unchecked::Skipped => Kind::Skipped,
                Unchecked::NoKey => Kind::NoKey,
                Unchecked::LookUpFailed => Kind::DeniedStoreFailed,
            };
            let series = Series::without_source(kind);
            let used = observer.used(rule);
            used.count(|stripe| (stripe.counts.request(0, series), ()));
        }
        #[cfg(feature = "tracing")]
        if what != Unchecked::Skipped
            && is_denial_logged()
            && let Some((rule, observer)) = self.rule(usize::from(rule))
        {
            let second = crate::observe::outage::second();
            let used = observer.used(rule);
            if let Some(one_in) = used.count(|stripe| (false, stripe.logged.log(second))) {
                tracing::debug!(
                    target: "tollgate",
                    rule = rule.name(),
                    one_in,
                    "request rejected: it has no key"
                );
            }
        }
        #[cfg(not(any(feature = "metrics", feature = "tracing")))]
        let _ = (rule, what);
    }
}

/// What became of a request that a rule did not check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unchecked {
    Skipped,
    NoKey,
    LookUpFailed,
}

/// A key makes up much of its rule's traffic.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[cold]
fn hot_key(rule: &Rule, observer: &Arc<RuleObserver>, hot: &Hot) {
    #[cfg(feature = "metrics")]
    observer.used(rule).count(|stripe| {
        stripe
            .counts
            .event(crate::observe::counts::Event::HotKey, 1);
        (true, ())
    });
    #[cfg(not(feature = "metrics"))]
    let _ = observer;
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "tollgate",
        rule = rule.name(),
        key = %hot.key,
        label = hot.label.as_deref(),
        percent = hot.percent,
        "hot key: one key makes up much of the requests of this rule"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = hot;
}

#[cfg(not(any(feature = "metrics", feature = "tracing")))]
fn hot_key(_: &Rule, _: &Arc<RuleObserver>, hot: &Hot) {
    match *hot {}
}

/// Counting for metrics.
#[cfg(feature = "metrics")]
mod counting {
    use super::{ONE_IN, Observer, Rule, RuleStore, Timer};
    use crate::{
        decision::{Decision, Outcome, Reason, Verdict},
        observe::{
            counts::{COMPUTED, Event, OTHER, PLANS},
            flush::Flush as _,
            names::CHECK_DURATION,
            rule_observer::{Rest, Used},
            series::{Kind, Series},
        },
        on_store_error::OnStoreError,
        rule::Mode,
        source::Source,
        store::rule_store::Usage,
        sync::lock,
    };

    /// The request of a verdict.
    #[derive(Clone, Copy)]
    pub(super) struct Request {
        pub(super) is_enforced: bool,
        pub(super) is_allowed: bool,
        pub(super) reason: Option<Reason>,
        pub(super) cost: u64,
        /// The answer to a store failure that the check brings along.
        pub(super) answer: Option<OnStoreError>,
    }

    /// Counts a verdict, and says whether to publish it at once.
    #[inline]
    pub(super) fn count(
        rule: &Rule,
        used: &Used,
        stripe: &mut Rest,
        verdict: &Verdict,
        request: Request,
    ) -> bool {
        let counts = &mut stripe.counts;
        let (source, outcome) = (verdict.source(), verdict.outcome());
        if source == Source::Fallback || outcome == Outcome::Failed {
            counts.event(Event::StoreFailure, 1);
        }
        let kind = match request.is_enforced {
            true => Kind::enforced(verdict, request.is_allowed, request.reason),
            false => Kind::reported(verdict),
        };
        let Some(kind) = kind else { return false };
        let plan = place_of(rule, verdict.plan());
        let at_once = counts.request(plan, Series::of(kind, source));
        if !request.is_enforced {
            match (request.is_allowed, kind) {
                (true, Kind::ShadowDeniedQuota | Kind::ShadowDeniedNever) => {
                    counts.event(Event::DiffersAllowed, 1);
                }
                (false, Kind::ShadowAllowed) => counts.event(Event::DiffersDenied, 1),
                _ => {}
            }
            return at_once;
        }
        match kind {
            Kind::Allowed => {
                counts.units(plan, request.cost, true);
                let limit = rule.limit_under(verdict.plan()).unwrap_or(0);
                if verdict.remaining() <= limit / 5 {
                    counts.event(Event::NearLimit, 1);
                    if verdict.remaining() == 0 && request.cost > 0 {
                        counts.event(Event::BurstExhausted, 1);
                    }
                }
            }
            Kind::DeniedQuota
            | Kind::DeniedNever
            | Kind::DeniedStoreFailed
            | Kind::DeniedSlots
            | Kind::DeniedQueueFull
            | Kind::DeniedWaitExpired => {
                counts.units(plan, request.cost, false);
                if verdict.retry().delay().is_some() {
                    if stripe.denials.is_multiple_of(ONE_IN) {
                        sample_retry_after(used, verdict);
                    }
                    stripe.denials = stripe.denials.wrapping_add(1);
                }
            }
            _ => {}
        }
        if source == Source::Fallback {
            fallback(stripe, verdict, request);
        }
        if verdict.has_numbers() && verdict.knows_remaining() {
            if stripe.requests.is_multiple_of(ONE_IN) {
                sample_remaining(rule, used, verdict);
            }
            stripe.requests = stripe.requests.wrapping_add(1);
        }
        at_once
    }

    /// A rule's answer while its store fails.
    #[cold]
    fn fallback(stripe: &mut Rest, verdict: &Verdict, request: Request) {
        let event = match verdict.outcome() {
            Outcome::Allow if request.answer == Some(OnStoreError::Allow) => Event::PassedByAllow,
            Outcome::Allow if request.answer == Some(OnStoreError::Degraded) => {
                Event::PassedByDegraded
            }
            Outcome::Deny if request.answer == Some(OnStoreError::Deny) => Event::RefusedByDeny,
            Outcome::Allow if verdict.is_degraded() => Event::FallbackPassed,
            Outcome::Allow => Event::FallbackAllowed,
            Outcome::Deny if verdict.has_numbers() => Event::FallbackDenied,
            Outcome::Deny => Event::FallbackRefused,
            _ => return,
        };
        stripe.counts.event(event, 1);
        if request.is_allowed && verdict.outcome() == Outcome::Allow {
            stripe.counts.event(Event::FallbackUnits, request.cost);
        }
    }

    #[cold]
    pub(super) fn sample_remaining(rule: &Rule, used: &Used, verdict: &Verdict) {
        if let Some(limit) = rule.limit_under(verdict.plan()).filter(|limit| *limit > 0) {
            let share = verdict.remaining() as f64 / limit as f64;
            lock(&used.handles).remaining.record(share);
        }
    }

    #[cold]
    pub(super) fn sample_retry_after(used: &Used, verdict: &Verdict) {
        if let Some(delay) = verdict.retry().delay() {
            lock(&used.handles).retry_after.record(delay.as_secs_f64());
        }
    }

    /// Where the requests of a plan are counted.
    #[inline]
    fn place_of(rule: &Rule, plan: usize) -> usize {
        match plan {
            0 => 0,
            _ if plan >= rule.quotas() => COMPUTED,
            _ if plan >= PLANS => OTHER,
            _ => plan,
        }
    }

    impl Observer {
        #[inline]
        pub(super) fn time(&self, timer: Timer) {
            if let Some(elapsed) = timer.elapsed() {
                self.check_duration
                    .get_or_init(|| metrics::histogram!(CHECK_DURATION))
                    .record(elapsed.as_secs_f64());
            }
        }

        /// Brings the metrics up to date once in a second.
        #[inline]
        pub(super) fn flush_once_a_second(&self, store: &dyn RuleStore, decision: &Decision) {
            use std::sync::atomic::Ordering;
            let second = decision.at() / 1_000_000;
            if self.flushed_at.load(Ordering::Relaxed) != second
                && self.flushed_at.swap(second, Ordering::Relaxed) != second
            {
                self.flush(store);
            }
        }

        /// The store's usage takes the locks of a rule's shards one after another.
        #[cold]
        fn flush(&self, store: &dyn RuleStore) {
            let mut sizes = self
                .local_tables
                .get()
                .map_or_else(Default::default, |it| it());
            sizes.top_keys_bytes = self.rules.iter().map(|it| it.top_keys_bytes()).sum();
            self.tables.show(sizes);
            for (index, (rule, observer)) in self.set.rules().iter().zip(&self.rules).enumerate() {
                observer.flush();
                if matches!(rule.mode(), Mode::Threshold { .. }) {
                    continue;
                }
                // A rule set has fewer than 65 536 rules.
                let index = index as u16;
                let (usage, lapsed) = (store.usage(index), store.lapsed_units(index));
                // The series of a rule begin with its first key.
                let is_used = usage.is_some_and(|usage| usage != Usage::default()) || lapsed > 0;
                if is_used || observer.used_before().is_some() {
                    let handles = lock(&observer.used(rule).handles);
                    handles.lapsed_units(lapsed);
                    if let Some(usage) = usage {
                        handles.usage(&usage);
                    }
                }
            }
        }
    }
}

#[cfg(feature = "tracing")]
#[inline]
fn is_denial_logged() -> bool {
    tracing::enabled!(target: "tollgate", tracing::Level::DEBUG)
}

#[cfg(all(feature = "metrics", not(feature = "tracing")))]
fn is_denial_logged() -> bool {
    false
}

/// Logs a denial, with what support needs.
#[cfg(feature = "tracing")]
#[cold]
fn denied(
    rule: &Rule,
    check: Option<&Check>,
    verdict: &Verdict,
    decision: &Decision,
    route: &str,
    one_in: u64,
) {
    use crate::{decision::Reason, observe::shown::shown};
    let plan = rule.plan_name(verdict.plan()).map(shown);
    let route = (!route.is_empty()).then(|| shown(route));
    tracing::debug!(
        target: "tollgate",
        rule = rule.name(),
        reason = decision.reason().map(Reason::as_str),
        source = verdict.source().as_str(),
        retry_after_ms = decision.retry_after().map(|delay| delay.as_millis() as u64),
        algorithm = rule.quota().algorithm().name(),
        plan = plan.as_deref(),
        limit = rule.limit_under(verdict.plan()),
        remaining = verdict.knows_remaining().then(|| verdict.remaining()),
        cost = check.map(Check::cost),
        key = check.map(|check| tracing::field::display(check.key().prefix())),
        at_ms = decision.at() / 1_000,
        route = route.as_deref(),
        one_in,
        "request denied"
    );
}

/// The begin and the end of store outages.
#[cfg(feature = "tracing")]
mod outages {
    use super::{Decision, Observer, Rule, Verdict};
    use crate::{observe::outage::second, source::Source};

    impl Observer {
        #[inline]
        pub(super) fn outage(&self, decision: &Decision) {
            let verdicts = decision.verdicts();
            let failed = |verdict: &&Verdict| verdict.source() == Source::Fallback;
            if let Some(verdict) = verdicts.iter().find(failed) {
                self.store_failed(decision, verdict);
            } else if self.outage.is_on() && verdicts.iter().any(Verdict::has_numbers) {
                self.store_recovered();
            }
        }

        #[cold]
        fn store_failed(&self, decision: &Decision, verdict: &Verdict) {
            if self.outage.failed(second()) {
                let rule = self.set.rules().get(verdict.rule());
                tracing::warn!(
                    target: "tollgate",
                    rule = rule.map_or("", Rule::name),
                    allowed = decision.is_allowed(),
                    "the store failed; each rule applies its on_store_error until the store responds again"
                );
            }
        }

        #[cold]
        fn store_recovered(&self) {
            if self.outage.succeeded(second()) {
                let rules: Vec<&str> = self.set.rules().iter().map(Rule::name).collect();
                tracing::info!(
                    target: "tollgate",
                    rules = rules.join(", "),
                    "the store responds again to the limiter with these rules"
                );
            }
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
