//! The rules of a layer on their store: whom a request counts against, at what cost.

use std::{fmt, num::NonZeroU32, sync::Arc};

use http::{StatusCode, request::Parts};
use smallvec::SmallVec;
use tollgate_core::{
    Check, Checks, Fingerprint, KeyBuf, Limiter, Mode, PartKind, Pending, Rule, RuleError,
    RuleErrorKind, RuleSet, Store,
};

use crate::{
    key::{Extracted, KeyExtractor, NoKey},
    observe::Observer,
    rule::{Missing, RequestRule},
};

/// Rules with whom they count, on their store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RequestRules {
    pub(crate) limiter: Limiter,
    pub(crate) observer: Arc<Observer>,
    /// In the order of the rule set.
    list: Arc<[RequestRule]>,
}

/// The checks of a request, as far as they are known.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) checks: Checks,
    /// Checks whose key is being looked up; their places in `checks` are held by checks of no key.
    later: Vec<(usize, Pending<Result<KeyBuf, NoKey>>)>,
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
        let set = RuleSet::new(list.iter().map(|rule| rule.rule.clone()))?;
        Ok(Self {
            observer: Arc::new(Observer::new(&set)),
            limiter: Limiter::bind_replacing(replaced, store, set, NonZeroU32::MIN)?,
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
            let plan = request_rule.plan.as_ref().map_or(0, |f| f(head, rule));
            if rule.quota_of(usize::from(plan)).is_unlimited() {
                self.observer.skipped(number);
                continue;
            }
            let cost = request_rule
                .cost
                .as_ref()
                .map_or_else(|| rule.fixed_cost(), |f| f(head));
            key.clear();
            match extractor.extract(head, &mut key) {
                Extracted::Key => {}
                Extracted::Nothing(why) => {
                    if !self.resolve_missing(number, why, &mut key)? {
                        continue;
                    }
                }
                Extracted::Later(answer) => {
                    asked.later.push((asked.checks.len(), answer));
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
        if let NoKey::Misconfigured(what) = &why {
            self.observer.misconfigured(rule, what);
        }
        match self.list[usize::from(rule)].missing {
            // A client that sends its key twice must not switch the rule off by that.
            Missing::Skip if why != NoKey::Ambiguous => {
                self.observer.skipped(rule);
                Ok(false)
            }
            Missing::Shared | Missing::Skip => {
                key.clear();
                key.push(PartKind::SHARED, []);
                Ok(true)
            }
            // A shadow denies nothing.
            Missing::Reject(_) if !self.set().enforces(usize::from(rule)) => {
                self.observer.skipped(rule);
                Ok(false)
            }
            Missing::Reject(status) => Err(Box::new(Refusal { rule, status, why })),
        }
    }

    /// Waits for the keys that are looked up, in the order of the rules.
    pub(crate) async fn look_up(self, mut asked: Asked) -> Result<Checks, Box<Refusal>> {
        let mut skipped: SmallVec<[usize; 4]> = SmallVec::new();
        for (place, answer) in asked.later {
            let number = asked.checks[place].rule();
            let mut key = KeyBuf::new();
            match answer.await {
                Ok(found) => key = found,
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
    if let Missing::Reject(status) = request_rule.missing {
        refuse_success(status)
            .map_err(|wrong| RuleError::new(RuleErrorKind::Key, rule.name(), wrong.to_string()))?;
    }
    Ok(())
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
