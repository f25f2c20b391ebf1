//! The rules of a layer on their store: whom a request counts against, at what cost.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use http::{StatusCode, request::Parts};
use smallvec::SmallVec;
use tollgate_core::{
    Check, Checks, Decision, Fingerprint, KeyBuf, Limiter, Mode, OnStoreError, PartKind, Rule,
    RuleError, RuleErrorKind, RuleSet, Store, UnknownName,
};

use crate::{
    key::{Extracted, KeyExtractor, NoKey},
    observe::Observer,
    rate_limit::look_ups::{self, LookUps},
    rule::{Missing, RequestRule},
};

/// Rules with whom they count, on their store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RequestRules {
    pub(crate) limiter: Limiter,
    pub(crate) observer: Arc<Observer>,
    /// In the order of the rule set.
    list: Arc<[RequestRule]>,
    /// How long the look-ups of a request may take, all together.
    pub(crate) look_up_deadline: Duration,
    /// Whether a rule gives back what a request took that was not served.
    pub(crate) gives_back: bool,
}

/// The checks of a request, as far as they are known.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) checks: Checks,
    /// Checks whose key is being looked up; their places in `checks` are held by checks of no key.
    later: LookUps,
}

/// A request without a key that a rule rejects.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) rule: u16,
    pub(crate) status: StatusCode,
    pub(crate) why: NoKey,
}

impl Asked {
    /// Whether keys are still looked up.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        !self.later.is_empty()
    }
}

impl RequestRules {
    pub(crate) fn new(
        replaced: &[&Limiter],
        store: &dyn Store,
        list: Vec<RequestRule>,
    ) -> Result<Self, RuleError> {
        for rule in &list {
            validate(rule)?;
        }
        refuse_all_off(&list)?;
        let set = RuleSet::new(list.iter().map(|rule| rule.rule.clone()))?;
        Ok(Self {
            observer: Arc::new(Observer::new(&set)),
            limiter: Limiter::bind_replacing(replaced, store, set, NonZeroU32::MIN)?,
            look_up_deadline: look_ups::DEADLINE,
            gives_back: list
                .iter()
                .any(|rule| rule.rule.is_enforced() && rule.key.is_some() && !rule.keeps),
            list: list.into(),
        })
    }

    /// The limiter that keeps the rule names in use. What is left here does not: requests on their way hold it.
    pub(crate) fn take_registered(&mut self) -> Limiter {
        let unregistered = self.limiter.unregistered();
        std::mem::replace(&mut self.limiter, unregistered)
    }

    /// The rule set in force.
    pub(crate) fn set(&self) -> &RuleSet {
        self.limiter.rules()
    }

    /// The extractor of the rule with this name.
    pub(crate) fn extractor(&self, name: &str) -> Option<&dyn KeyExtractor> {
        let rule = self.list.iter().find(|rule| rule.rule.name() == name)?;
        rule.key.as_deref()
    }

    /// Whether a handler may ask rules of its own.
    pub(crate) fn asks_in_handler(&self) -> bool {
        self.list.iter().any(|rule| rule.key.is_none())
    }

    /// The rule that is left to handlers, by its name.
    pub(crate) fn in_handler(&self, name: &str) -> Option<(u16, &RequestRule)> {
        let place = self
            .list
            .iter()
            .position(|rule| rule.key.is_none() && rule.rule.name() == name)?;
        // A rule set has fewer than 65 536 rules.
        Some((place as u16, &self.list[place]))
    }

    pub(crate) fn names_in_handler(&self) -> impl Iterator<Item = &str> {
        self.list
            .iter()
            .filter(|rule| rule.key.is_none())
            .map(|rule| rule.rule.name())
    }

    /// Collects the checks of a request.
    #[inline]
    pub(crate) fn ask(&self, head: &Parts, asked: &mut Asked) -> Result<(), Box<Refusal>> {
        let mut key = KeyBuf::new();
        for (place, request_rule) in self.list.iter().enumerate() {
            let (rule, Some(extractor)) = (&request_rule.rule, &request_rule.key) else {
                continue;
            };
            // A rule set has fewer than 65 536 rules.
            let number = place as u16;
            if *rule.mode() == Mode::Off || request_rule.applies.as_ref().is_some_and(|f| !f(head))
            {
                continue;
            }
            if request_rule.exempt.as_ref().is_some_and(|f| f(head)) {
                self.observer.skipped(number);
                continue;
            }
            let plan = request_rule.plan.as_ref().map_or(0, |f| {
                f(head, rule, &mut |name| self.unknown_plan(number, name))
            });
            let quota = rule.quota_of(usize::from(plan));
            if quota.is_unlimited() {
                self.observer.skipped(number);
                continue;
            }
            let cost = match &request_rule.cost {
                None => rule.fixed_cost(),
                Some(f) => {
                    let (cost, limit) = (f(head), quota.limit());
                    if cost > limit {
                        self.observer.cost_above_limit(number, cost, limit);
                    }
                    cost
                }
            };
            key.clear();
            match extractor.extract(head, &mut key) {
                Extracted::Key => self.observer.keyed(number),
                Extracted::Nothing(why) => {
                    if !self.resolve_missing(number, why, &mut key)? {
                        continue;
                    }
                }
                Extracted::Later(answer) => {
                    asked.later.push(asked.checks.len(), answer);
                    let nobody = Fingerprint::from_bits(0);
                    asked
                        .checks
                        .push(Check::new(number, nobody, cost).with_plan(plan));
                    continue;
                }
            }
            let check = self.limiter.check_at(number, &key, cost);
            asked.checks.push(check.with_plan(plan));
        }
        Ok(())
    }

    /// Does what a rule says of a request without a key. Whether to check it all the same: against the shared bucket.
    #[cold]
    fn resolve_missing(
        &self,
        rule: u16,
        why: NoKey,
        key: &mut KeyBuf,
    ) -> Result<bool, Box<Refusal>> {
        let then = self.without_key(rule, &why);
        match &why {
            NoKey::Misconfigured(what) => self.observer.misconfigured(rule, what),
            NoKey::LookUpFailed => self.observer.look_up_failed(rule, then.in_words()),
            NoKey::Absent | NoKey::Ambiguous => {}
        }
        if why != NoKey::LookUpFailed {
            self.observer.keyless(rule, then.in_words());
        }
        match then {
            WithoutKey::Skip => {
                self.observer.skipped(rule);
                Ok(false)
            }
            WithoutKey::Share => {
                key.clear();
                key.push(PartKind::SHARED, []);
                Ok(true)
            }
            WithoutKey::Reject(status) => Err(Box::new(Refusal { rule, status, why })),
        }
    }

    /// What a rule does with a request that has no key, for this reason.
    fn without_key(&self, rule: u16, why: &NoKey) -> WithoutKey {
        let RequestRule { rule, missing, .. } = &self.list[usize::from(rule)];
        if *why == NoKey::LookUpFailed {
            return match (rule.store_error_answer(), missing) {
                // A shadow denies nothing, and what it would count is not known.
                _ if !rule.is_enforced() => WithoutKey::Skip,
                (OnStoreError::Allow | OnStoreError::Degraded, _) => WithoutKey::Skip,
                // The client did nothing wrong: no 401.
                (OnStoreError::Deny, _) | (_, Missing::Reject(_)) => {
                    WithoutKey::Reject(StatusCode::SERVICE_UNAVAILABLE)
                }
                _ => WithoutKey::Share,
            };
        }
        match missing {
            // Neither a client that sends its key twice nor a service that is not set up may switch the rule off.
            Missing::Skip if *why == NoKey::Absent => WithoutKey::Skip,
            Missing::Shared | Missing::Skip => WithoutKey::Share,
            // A shadow denies nothing.
            Missing::Reject(_) if !rule.is_enforced() => WithoutKey::Skip,
            Missing::Reject(status) => WithoutKey::Reject(*status),
        }
    }

    /// Tells of a request that was rejected because it has no key.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        if refusal.why == NoKey::LookUpFailed {
            self.observer.look_up_refused(refusal.rule);
        } else {
            self.observer.no_key(refusal.rule);
        }
    }

    #[cold]
    fn unknown_plan(&self, rule: u16, name: &str) {
        self.observer.unknown_plan(rule, || {
            // It comes from somewhere else; what is longer than a name may be is no name.
            let name = name.chars().take(64).collect::<String>();
            let names = self.list[usize::from(rule)].rule.plan_names();
            UnknownName::new("plan", &name, names)
        });
    }

    /// Gives back what the checks of an allowed request took, but for rules that keep it.
    #[cold]
    pub(crate) fn give_back(&self, checks: &[Check], decision: &Decision) {
        let returned: Checks = checks
            .iter()
            .map(|check| {
                if self.keeps(check.rule()) {
                    check.with_cost(0)
                } else {
                    self.observer.given_back(check.rule());
                    *check
                }
            })
            .collect();
        self.limiter.ticket(&returned, decision).cancel();
    }

    /// Whether a rule keeps what was taken. A threshold has taken nothing.
    fn keeps(&self, rule: u16) -> bool {
        self.list
            .get(usize::from(rule))
            .is_none_or(|rule| rule.keeps || !rule.rule.is_enforced())
    }

    /// Waits for the keys that are looked up, all at the same time.
    pub(crate) async fn look_up(self, mut asked: Asked) -> Result<Checks, Box<Refusal>> {
        let mut skipped: SmallVec<[usize; 4]> = SmallVec::new();
        // In the order of the rules, so that of several that reject a request always the first one does.
        for (place, found) in asked.later.within(self.look_up_deadline).await {
            let number = asked.checks[place].rule();
            let mut key = KeyBuf::new();
            match found {
                Ok(found) => {
                    self.observer.keyed(number);
                    key = found;
                }
                Err(why) => {
                    if !self.resolve_missing(number, why, &mut key)? {
                        skipped.push(place);
                        continue;
                    }
                }
            }
            let placeholder = asked.checks[place];
            asked.checks[place] = self
                .limiter
                .check_at(number, &key, placeholder.cost())
                .with_plan(placeholder.plan());
        }
        for place in skipped.into_iter().rev() {
            asked.checks.remove(place);
        }
        Ok(asked.checks)
    }
}

impl fmt::Debug for RequestRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.iter()).finish()
    }
}

/// What becomes of a request without a key.
#[derive(Clone, Copy, Debug)]
enum WithoutKey {
    /// It counts with all others that have none.
    Share,
    /// The rule does not apply to it.
    Skip,
    /// It is rejected.
    Reject(StatusCode),
}

impl WithoutKey {
    /// What happens to all such requests, as the end of a sentence.
    fn in_words(self) -> &'static str {
        match self {
            Self::Share => "all of them share one bucket",
            Self::Skip => "none of them is limited by it",
            Self::Reject(_) => "all of them are rejected",
        }
    }
}

/// Rules from code that limit nothing are a mistake. A document may switch all of its rules off: that is between a
/// [`RuleSet`] and a [`Limiter`].
fn refuse_all_off(list: &[RequestRule]) -> Result<(), RuleError> {
    let is_off = |rule: &RequestRule| *rule.rule.mode() == Mode::Off;
    if list.is_empty() || !list.iter().all(is_off) {
        return Ok(());
    }
    let names: Vec<_> = list
        .iter()
        .map(|rule| format!("{:?}", rule.rule.name()))
        .collect();
    Err(RuleError::general(
        RuleErrorKind::RuleSet,
        format!(
            "every rule is off ({}), so the layer would limit nothing; leave the layer away, or take off() away from a rule, \
             with shadow() in its place if it shall only count",
            names.join(", ")
        ),
    ))
}

fn validate(request_rule: &RequestRule) -> Result<(), RuleError> {
    let rule: &Rule = &request_rule.rule;
    if let Some(key) = &request_rule.key {
        key.validate()
            .map_err(|wrong| RuleError::new(RuleErrorKind::Key, rule.name(), wrong))?;
    } else if let Some(call) = request_rule.call_about_requests() {
        return Err(RuleError::new(
            RuleErrorKind::Key,
            rule.name(),
            format!(
                "{call} says something about requests, but with by_handler() the handler alone says when to ask, for whom \
                 and at what cost; take {call} away, or count with by(..)"
            ),
        ));
    }
    if request_rule.plan.is_some() && rule.quotas() == 1 {
        return Err(RuleError::new(
            RuleErrorKind::Plan,
            rule.name(),
            "plan_by chooses among plans, and the rule has none; add each with plan(name, quota), or take plan_by away",
        ));
    }
    if let Missing::Reject(status) = request_rule.missing {
        refuse_success(status)
            .map_err(|wrong| RuleError::new(RuleErrorKind::Key, rule.name(), wrong.to_string()))?;
    }
    Ok(())
}

/// Jitter above the wait itself is a number of another unit.
pub(crate) fn refuse_much_jitter(percent: u8) -> Result<(), RuleError> {
    if percent <= 100 {
        return Ok(());
    }
    Err(RuleError::general(
        RuleErrorKind::RuleSet,
        format!(
            "a jitter of {percent} % would more than double the wait; take 0 to 100, 20 is usual"
        ),
    ))
}

/// A denial with a status below 400 would tell clients that all is well.
pub(crate) fn refuse_success(status: StatusCode) -> Result<(), RuleError> {
    if status.is_client_error() || status.is_server_error() {
        return Ok(());
    }
    Err(RuleError::general(
        RuleErrorKind::RuleSet,
        format!(
            "{status} does not tell a client that it was denied; take a status of 400 to 599, 429 for a limit"
        ),
    ))
}
