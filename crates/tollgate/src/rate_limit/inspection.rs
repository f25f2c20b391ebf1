//! What the rules of a layer would do with a request or a client: for operators.

use http::StatusCode;
use tollgate_core::{Check, Key, KeyBuf, Limiter, Mode, PartKind};

use crate::{
    head::Head,
    key::Extracted,
    rate_limit::{
        layer::RateLimitLayer,
        request_rules::{RequestRules, unkeyed},
    },
    request_settings::Missing,
};

/// The rules of a layer at one time, to be asked what they would do: made by [`RateLimitLayer::inspection`]. Nothing is counted.
///
/// ```
/// use tollgate::{
///     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header, siblings::RuleEffect,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::new("posts", Quota::gcra(60, MINUTE))
///     .by(header("x-api-key"))
///     .when(|head| head.method == "POST");
/// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
/// let inspection = layer.inspection();
/// let get = http::Request::get("/").header("x-api-key", "acme").body(())?.into_parts().0;
/// assert!(matches!(inspection.effect(0, &get).await, RuleEffect::ConditionFails));
///
/// let post = http::Request::post("/").header("x-api-key", "acme").body(())?.into_parts().0;
/// let RuleEffect::Counts(check) = inspection.effect(0, &post).await else {
///     panic!("it counts");
/// };
/// let decision = inspection.limiter().peek(&[check]).await;
/// assert_eq!(decision.verdicts()[0].remaining(), 59);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Inspection {
    rules: RequestRules,
}

/// What a rule would do with a request.
#[derive(Clone, Debug)]
pub enum RuleEffect {
    /// It counts the request, by this check; a shadow denies nothing.
    Counts(Check),
    /// Its condition does not hold.
    ConditionFails,
    /// It does not count the request, for this reason.
    Ignores(&'static str),
    /// The request has no key, and the rule rejects such requests with this status.
    Rejects(StatusCode),
}

const OFF: RuleEffect = RuleEffect::Ignores("off");
const UNLIMITED: RuleEffect = RuleEffect::Ignores("the caller has no limit");

impl RateLimitLayer {
    /// The rules in force, to be asked what they would do with a request: for operators and tests.
    #[doc(hidden)]
    #[must_use]
    pub fn inspection(&self) -> Inspection {
        let rules = self.live().load().rules.clone();
        Inspection { rules }
    }
}

impl Inspection {
    /// The limiter of these rules. Checks are [looked at](Limiter::peek) and [reset](Limiter::reset_all) there.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.rules.limiter
    }

    /// The check of the rule with this name for a key, at the rule's fixed cost, and under the plan that the key has by itself.
    /// `None`: there is no such rule, it does not count the key, or the key has no limit.
    #[must_use]
    pub fn check_of(&self, rule: &str, key: &Key) -> Option<Check> {
        let place = self.rules.set().position(rule)?;
        let cost = self.rules.list().get(place)?.settings().rule.fixed_cost();
        // A rule set has fewer than 65 536 rules.
        self.rules.check(unkeyed(place as u16, cost), key.as_ref())
    }

    /// What the rule at this place of the layer's rules would do with a request.
    pub async fn effect<'a>(&self, rule: usize, head: impl Into<Head<'a>>) -> RuleEffect {
        let head = &head.into();
        let Some(request_rule) = self.rules.list().get(rule) else {
            return OFF;
        };
        let settings = request_rule.settings();
        // A rule set has fewer than 65 536 rules.
        let number = rule as u16;
        let Some(extractor) = &settings.key else {
            return RuleEffect::Ignores("its handler checks it");
        };
        if *settings.rule.mode() == Mode::Off {
            return OFF;
        }
        if settings.applies.as_ref().is_some_and(|f| !f(head)) {
            return RuleEffect::ConditionFails;
        }
        if settings.exempt.as_ref().is_some_and(|f| f(head)) {
            return RuleEffect::Ignores("the request is exempt");
        }
        let terms = self.rules.terms_for(number, head);
        if terms.limit.is_none() && !settings.has_plans_by_key() {
            return UNLIMITED;
        }
        let mut key = KeyBuf::new();
        let extracted = match extractor.extract(head, &mut key) {
            Extracted::Key => Ok(()),
            Extracted::Nothing(why) => Err(why),
            Extracted::Later(answer) => answer.await.map(|found| key = found),
        };
        if let Err(why) = extracted {
            match self.rules.without_key(number, &why, terms.check.policy()) {
                _ if terms.limit.is_none() => return UNLIMITED,
                Missing::Skip => {
                    return RuleEffect::Ignores("the request has no key, and is skipped");
                }
                Missing::Reject(status) => return RuleEffect::Rejects(status),
                Missing::Shared => {
                    key.clear();
                    key.push(PartKind::SHARED, []);
                }
            }
        }
        match self.rules.check(terms.check, &key) {
            Some(check) => RuleEffect::Counts(check),
            None if settings.applies_to_key.as_ref().is_some_and(|f| !f(&key)) => {
                RuleEffect::Ignores("it counts other callers")
            }
            None => UNLIMITED,
        }
    }
}
