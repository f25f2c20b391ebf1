//! The rules of a layer on their store: a request's checks from its head.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use smallvec::SmallVec;
use tollgate_core::{
    Block, Check, Decision, Key, KeyBuf, Limiter, Mode, OnStoreError, Outcome, PartKind, Reason,
    Rule, RuleError, RuleSet, Store, Verdict,
    store::{Checks, Fingerprint},
    types::{CheckPolicy, CheckQuota},
};

use crate::{
    head::Head,
    key::{
        Extracted, KeyExtractor, NoKey,
        look_ups::{self, LookUps},
    },
    observe::Observer,
    rate_limit::{route_index::RouteIndex, validation::validate},
    request_rule::RequestRule,
    request_settings::{Missing, RequestSettings},
    routes::whole_path,
};

/// Rules with their extractors, on their store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RequestRules {
    pub(crate) limiter: Limiter,
    pub(crate) observer: Arc<Observer>,
    /// In the order of the rule set.
    list: Arc<[RequestRule]>,
    /// Those of them that count requests, in the same order.
    counting: Arc<[CountingRule]>,
    /// Finds those of a request, among many rules on paths.
    index: Option<Arc<RouteIndex>>,
    /// By rule, the plans of single keys, by what stands for a key in the store; empty if no rule selects plans by key.
    plans_by_key: Arc<[HashMap<u128, u16>]>,
    /// The deadline for all look-ups of a request together.
    pub(crate) look_up_deadline: Duration,
    /// Whether any rule settles requests by their responses.
    pub(crate) settles_by_response: bool,
    /// Whether any rule counts requests that stay counted towards a block.
    pub(crate) counts_settled: bool,
    /// Whether there are rules for handlers.
    pub(crate) is_checked_in_handler: bool,
    /// Whether any rule may answer in the place of the service.
    pub(crate) has_challenges: bool,
}

/// A rule that counts requests: not one that is off or for handlers. With what is known before there is a request.
struct CountingRule {
    rule: RequestRule,
    number: u16,
    key: Arc<dyn KeyExtractor>,
    /// `None`: computed for each request.
    terms: Option<Terms>,
    /// Whether it applies to some requests, or not to some.
    has_conditions: bool,
    /// Whether its quota, or whether it applies at all, depends on the key.
    depends_on_key: bool,
    /// Whether it takes ids of requests.
    has_id: bool,
}

/// What a rule asks about a request.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// Its check, of no key yet, with its quota.
    pub(super) check: Check,
    /// The limit of its quota. `None`: it has none.
    pub(super) limit: Option<u64>,
}

/// The longest part of the id of a request, in bytes: a longer one is none.
const LONGEST_ID: usize = 255;

/// Keys that are not in the head, with their rules: those of rules that [tell](RequestRule::on_denied) of denials.
pub(crate) type FoundKeys = Vec<(u16, Key)>;

/// The checks of a request whose keys are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownChecks {
    pub(crate) checks: Checks,
    pub(crate) found: FoundKeys,
}

impl From<Checks> for KnownChecks {
    fn from(checks: Checks) -> Self {
        let found = FoundKeys::new();
        Self { checks, found }
    }
}

/// A request without a key that a rule rejects.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) rule: u16,
    pub(crate) status: StatusCode,
    pub(crate) why: NoKey,
}

impl Refusal {
    pub(crate) fn reason(&self) -> Reason {
        match self.why {
            NoKey::LookUpFailed => Reason::StoreFailed,
            _ => Reason::NoKey,
        }
    }
}

impl RequestRules {
    pub(crate) fn new(store: Arc<dyn Store>, list: Vec<RequestRule>) -> Result<Self, RuleError> {
        Self::rule_set(&list)?;
        let rules = list.iter().map(|rule| rule.settings().core_rule());
        let limiter = Limiter::new(store, rules)?;
        Ok(Self::on(list, limiter, None))
    }

    /// The rule set of valid rules.
    pub(crate) fn rule_set(list: &[RequestRule]) -> Result<RuleSet, RuleError> {
        for rule in list {
            validate(rule.settings())?;
        }
        RuleSet::new(list.iter().map(|rule| rule.settings().core_rule()))
    }

    /// The rules of a limiter. `before`: those whose place they take. What was reported under their names is not reported again.
    pub(super) fn on(list: Vec<RequestRule>, limiter: Limiter, before: Option<&Self>) -> Self {
        let any = |does: fn(&RequestSettings) -> bool| list.iter().any(|it| does(it.settings()));
        let counting = list.iter().enumerate().filter_map(|(place, rule)| {
            let settings = rule.settings();
            let key = settings.key.as_ref()?;
            // A rule set has fewer than 65 536 rules.
            let number = place as u16;
            let terms = || Terms {
                check: unkeyed(number, settings.rule.fixed_cost()),
                limit: settings.rule.limit_under(0),
            };
            (*settings.rule.mode() != Mode::Off).then(|| CountingRule {
                rule: rule.clone(),
                number,
                key: Arc::clone(key),
                terms: (!settings.computes_terms()).then(terms),
                has_conditions: settings.applies.is_some() || settings.exempt.is_some(),
                has_id: settings.id.is_some(),
                depends_on_key: settings.applies_to_key.is_some() || settings.has_plans_by_key(),
            })
        });
        let counting: Arc<[CountingRule]> = counting.collect();
        let routes = counting.iter().map(|it| &it.rule.settings().routes);
        Self {
            index: RouteIndex::new(routes).map(Arc::new),
            counting,
            plans_by_key: plans_by_key(&list, &limiter),
            observer: Arc::new(Observer::new(
                &limiter,
                before.map(|before| &*before.observer),
            )),
            has_challenges: any(|rule| !rule.challenges.is_empty()),
            limiter,
            look_up_deadline: look_ups::DEADLINE,
            counts_settled: any(|rule| {
                let rule = rule.core_rule();
                rule.block_setting().is_some_and(Block::counts_settled)
            }),
            settles_by_response: any(|rule| rule.call_about_responses().is_some()),
            is_checked_in_handler: any(|rule| rule.key.is_none()),
            list: list.into(),
        }
    }

    /// The limiter that keeps the rule names in use. The one left here does not: requests in flight hold it.
    pub(crate) fn take_registered(&mut self) -> Limiter {
        let unregistered = self.limiter.unregistered();
        std::mem::replace(&mut self.limiter, unregistered)
    }

    /// The rule set in force.
    pub(crate) fn set(&self) -> &RuleSet {
        self.limiter.rules()
    }

    /// The rules, in the order of the rule set.
    pub(super) fn list(&self) -> &[RequestRule] {
        &self.list
    }

    fn all(&self) -> impl Iterator<Item = &RequestSettings> + Clone {
        self.list.iter().map(RequestRule::settings)
    }

    /// The rule at this index, which is one of the set.
    #[inline]
    pub(super) fn of_rule(&self, rule: u16) -> &RequestSettings {
        self.list[usize::from(rule)].settings()
    }

    /// A rule did not apply to a request.
    #[inline]
    pub(super) fn skipped(&self, rule: u16) {
        self.limiter.observer().unchecked(rule, None);
    }

    /// The extractor of the rule with this name.
    pub(crate) fn extractor(&self, name: &str) -> Option<&dyn KeyExtractor> {
        let rule = self.list.get(self.set().position(name)?)?;
        rule.settings().key.as_deref()
    }

    /// The rule for handlers with this name.
    pub(crate) fn for_handlers(&self, name: &str) -> Result<(u16, &Rule), RuleError> {
        let for_handlers = self.all().zip(0..).filter(|(rule, _)| rule.key.is_none());
        let rules = for_handlers.map(|(rule, number)| (number, &rule.rule));
        let found = rules.clone().find(|(_, rule)| rule.name() == name);
        found.ok_or_else(|| {
            let names = rules.map(|(_, rule)| rule.name());
            RuleError::unknown("rule for handlers of the innermost layer", name, names)
        })
    }

    /// Collects the checks of a request. Those whose keys are looked up have a placeholder. A fragment is a head that says only a
    /// part of its request: a rule whose key it lacks does not apply to it.
    #[inline]
    pub(crate) fn collect(
        &self,
        head: &Head<'_>,
        is_fragment: bool,
        checks: &mut Checks,
    ) -> Result<Option<Box<LookUps>>, Box<Refusal>> {
        let mut collecting = Collecting {
            rules: self,
            head,
            checks,
            key: KeyBuf::new(),
            look_ups: None,
        };
        // Among many, an index finds those that may apply.
        let candidates = self.index.as_ref().map(|index| index.candidates(head));
        let rule_at = |n: usize| match &candidates {
            None => self.counting.get(n),
            Some(candidates) => Some(&self.counting[usize::from(*candidates.get(n)?)]),
        };
        for rule in (0..).map_while(rule_at) {
            if is_fragment && matches!(collecting.extract(rule), Extracted::Nothing(_)) {
                continue;
            }
            collecting.add(rule)?;
        }
        Ok(collecting.look_ups)
    }

    /// What a rule asks about this request. Where it has no limit for it, its cost is not computed.
    pub(super) fn terms_for(&self, number: u16, head: &Head<'_>) -> Terms {
        let request_rule = self.of_rule(number);
        let quota = self.quota_by(number, request_rule, head);
        let limit = request_rule.rule.limit_under(usize::from(quota.plan()));
        let mut check = unkeyed(number, request_rule.rule.fixed_cost()).with_quota(quota);
        if limit.is_some() || request_rule.has_plans_by_key() {
            if let Some(cost) = &request_rule.cost {
                check = check.with_cost(cost(head));
            }
            check = check.with_policy(request_rule.policy_of(head));
        }
        Terms { check, limit }
    }

    /// Checks that cost nothing, of the enforced rules that apply to who sent this head, whatever it is for. Nothing is reported
    /// but an unknown plan and a quota that cannot be counted.
    pub(crate) async fn checks_of_caller(&self, head: &Head<'_>) -> Checks {
        let (mut checks, mut later) = (Checks::new(), Checks::new());
        let mut look_ups = LookUps::default();
        let mut key = KeyBuf::new();
        for rule in &*self.counting {
            let (number, request_rule) = (rule.number, rule.rule.settings());
            if !request_rule.rule.is_enforced()
                || request_rule.exempt.as_ref().is_some_and(|f| f(head))
            {
                continue;
            }
            let quota = self.quota_by(number, request_rule, head);
            let check = unkeyed(number, 0).with_quota(quota);
            let limit = request_rule.rule.limit_under(usize::from(quota.plan()));
            if limit.is_none() && !request_rule.has_plans_by_key() {
                continue;
            }
            // A caller is only blocked where the rule applies; where it counts, what is left is the same everywhere.
            if limit == Some(0) && request_rule.applies.as_ref().is_some_and(|f| !f(head)) {
                continue;
            }
            key.clear();
            match rule.key.extract(head, &mut key) {
                Extracted::Key => checks.extend(self.check(check, &key)),
                Extracted::Nothing(_) => {}
                Extracted::Later(answer) => {
                    look_ups.push(later.len(), answer);
                    later.push(check);
                }
            }
        }
        for (place, found) in look_ups.within(self.look_up_deadline).await {
            if let Ok(key) = found {
                checks.extend(self.check(later[place], &key));
            }
        }
        checks
    }

    /// The quota that was computed for a request, or else its plan.
    fn quota_by(&self, rule: u16, request_rule: &RequestSettings, head: &Head<'_>) -> CheckQuota {
        let own = &request_rule.rule;
        if let Some(quota) = request_rule.quota.as_ref().and_then(|f| f(head)) {
            return own.quota_for(quota).unwrap_or_else(|error| {
                self.observer.quota_refused(rule, &error);
                CheckQuota::of_plan(0)
            });
        }
        CheckQuota::of_plan(request_rule.plan.as_ref().map_or(0, |f| {
            f(head, own, &mut |name| {
                self.observer.unknown_plan(own, rule, name)
            })
        }))
    }

    /// The same check for a key, at its quota unless the key has a plan of its own. `None`: its rule does not apply to the key, or its
    /// plan has no limit.
    pub(super) fn check(&self, check: Check, key: &KeyBuf) -> Option<Check> {
        let (settings, quota) = (self.of_rule(check.rule()), check.quota());
        let applies = settings.applies_to_key.as_ref();
        if applies.is_some_and(|applies| !applies(key)) {
            return None;
        }
        let check = self.limiter.with_key(check, key);
        let Some(plans) = self.plans_by_key.get(usize::from(check.rule())) else {
            return Some(check.with_quota(quota));
        };
        let plan = plans.get(&check.key().bits()).copied().or_else(|| {
            let name = settings.plan_of_key.as_ref()?(key)?;
            // A rule has fewer than 65 535 plans.
            Some(settings.rule.plan_number(&name)? as u16)
        });
        let check = match plan {
            Some(of_key) => check.with_plan(of_key),
            None => check.with_quota(quota),
        };
        let limit = settings.rule.limit_under(usize::from(check.plan()));
        limit.map(|_| check)
    }

    /// Applies a rule's setting for requests without a key. Returns whether to check the request against the shared bucket.
    fn resolve_missing(
        &self,
        rule: u16,
        why: NoKey,
        policy: CheckPolicy,
        key: &mut KeyBuf,
    ) -> Result<bool, Box<Refusal>> {
        let then = self.without_key(rule, &why, policy);
        match &why {
            NoKey::Misconfigured(what) => self.observer.misconfigured(rule, what),
            NoKey::LookUpFailed => self.observer.look_up_failed(rule, describe(then)),
            NoKey::Absent | NoKey::Ambiguous => {}
        }
        if why != NoKey::LookUpFailed {
            self.observer.keyless(rule, describe(then));
        }
        match then {
            Missing::Skip => {
                self.skipped(rule);
                Ok(false)
            }
            Missing::Shared => {
                key.clear();
                key.push(PartKind::SHARED, []);
                Ok(true)
            }
            Missing::Reject(status) => Err(Box::new(Refusal { rule, status, why })),
        }
    }

    /// What a rule does with a request that has no key for this reason.
    pub(super) fn without_key(&self, rule: u16, why: &NoKey, policy: CheckPolicy) -> Missing {
        let RequestSettings { rule, missing, .. } = self.of_rule(rule);
        if *why == NoKey::LookUpFailed {
            let answer = policy.store_error_answer();
            return match (answer.unwrap_or(rule.store_error_answer()), missing) {
                // A shadow denies nothing, and its key is unknown.
                _ if !rule.is_enforced() => Missing::Skip,
                (OnStoreError::Allow | OnStoreError::Degraded, _) => Missing::Skip,
                // Not the client's fault: no 401.
                (OnStoreError::Deny, _) | (_, Missing::Reject(_)) => {
                    Missing::Reject(StatusCode::SERVICE_UNAVAILABLE)
                }
                _ => Missing::Shared,
            };
        }
        match missing {
            // Whom it blocks must not get past it by sending the key twice, of which the application may read one.
            Missing::Shared | Missing::Skip
                if *why == NoKey::Ambiguous && rule.is_enforced() && rule.quota().is_none() =>
            {
                Missing::Reject(StatusCode::BAD_REQUEST)
            }
            // An ambiguous key or a misconfigured service must not disable the rule.
            Missing::Skip if *why == NoKey::Absent => Missing::Skip,
            Missing::Shared | Missing::Skip => Missing::Shared,
            // A shadow denies nothing.
            Missing::Reject(_) if !rule.is_enforced() => Missing::Skip,
            Missing::Reject(status) => Missing::Reject(*status),
        }
    }

    /// Calls what rules have set for their denials.
    pub(crate) fn denied<'a>(
        &self,
        head: &Head<'_>,
        verdicts: impl IntoIterator<Item = &'a Verdict>,
        decision: &Decision,
        found: &[(u16, Key)],
    ) {
        for verdict in verdicts {
            let rule = self
                .list
                .get(verdict.rule())
                .map(RequestRule::settings)
                .filter(|rule| rule.rule.is_enforced());
            if verdict.outcome() == Outcome::Deny
                && let Some(rule) = rule
                && let Some(denied) = &rule.on_denied
            {
                let mut found = found.iter();
                match found.find(|(number, _)| usize::from(*number) == verdict.rule()) {
                    Some((_, key)) => denied(head, key, decision),
                    None => denied(head, &key_in(rule, head), decision),
                }
            }
        }
    }

    /// The keys of checks that a copy of the head does not have.
    pub(crate) fn keys_of(&self, head: &Head<'_>, known: &mut KnownChecks) {
        for check in &known.checks {
            let (number, rule) = (check.rule(), self.of_rule(check.rule()));
            if rule.on_denied.is_some() && known.found.iter().all(|(found, _)| *found != number) {
                known.found.push((number, key_in(rule, head)));
            }
        }
    }

    /// The answer of the first challenge to an admitted request that is above its threshold, of rules that are enforced.
    pub(crate) fn challenge(
        &self,
        head: &Head<'_>,
        decision: &Decision,
    ) -> Option<Response<Bytes>> {
        let mut denied = decision
            .verdicts()
            .iter()
            .filter(|verdict| verdict.outcome() == Outcome::Deny);
        denied.find_map(|verdict| {
            let threshold = self.set().rules().get(verdict.rule())?.name();
            let enforced = self.all().filter(|rule| rule.rule.is_enforced());
            let mut challenges = enforced.flat_map(|rule| &rule.challenges);
            let (_, answer) = challenges.find(|(of, _)| **of == *threshold)?;
            answer(head, verdict)
        })
    }

    /// The status of a denial that blocks: that of the first limit of none; `denied` if it is by a block that ends.
    pub(crate) fn blocked_status(&self, decision: &Decision, denied: StatusCode) -> StatusCode {
        let blocks = |verdict: &&Verdict| {
            verdict.is_blocked()
                && verdict.block_level().is_none()
                && self.set().enforces(verdict.rule())
        };
        let rule = decision.verdicts().iter().find(blocks);
        rule.and_then(|verdict| self.list.get(verdict.rule()))
            .map_or(denied, |rule| rule.settings().blocked_status)
    }

    /// Waits for all look-ups at the same time.
    pub(crate) async fn look_up(
        &self,
        mut checks: Checks,
        look_ups: Box<LookUps>,
    ) -> Result<KnownChecks, Box<Refusal>> {
        let mut found_keys = FoundKeys::new();
        let of_checks = checks.iter().enumerate();
        let known = of_checks.filter(|(place, _)| !look_ups.has(*place));
        let known: Checks = known.map(|(_, check)| *check).collect();
        if self.limiter.blocked(&known).is_some() {
            // No look-up changes that, and some cost a call.
            return Ok(known.into());
        }
        let mut skipped: SmallVec<[usize; 4]> = SmallVec::new();
        // In the order of the rules, so that the first rule that rejects the request is the one reported.
        for (place, found) in look_ups.within(self.look_up_deadline).await {
            let placeholder = checks[place];
            let (number, policy) = (placeholder.rule(), placeholder.policy());
            let (rule, quota) = (self.of_rule(number), placeholder.quota());
            let limit = rule.rule.limit_under(usize::from(quota.plan()));
            let mut key = KeyBuf::new();
            let has_key = match found {
                Ok(found) => {
                    self.observer.keyed(number);
                    key = found;
                    true
                }
                Err(_) if limit.is_none() => {
                    self.skipped(number);
                    false
                }
                Err(why) => self.resolve_missing(number, why, policy, &mut key)?,
            };
            if !has_key {
                skipped.push(place);
                continue;
            }
            let check = unkeyed(number, placeholder.cost());
            match self.check(check.with_policy(policy).with_quota(quota), &key) {
                Some(mut check) => {
                    if let Some(id) = placeholder.id() {
                        // That of the request, which has a key now.
                        let id = Key::of(id.get().to_le_bytes());
                        check = self.limiter.with_id(check, &id).unwrap_or(check);
                    }
                    checks[place] = check;
                    if rule.on_denied.is_some() {
                        found_keys.push((number, key.into()));
                    }
                }
                None => {
                    self.skipped(number);
                    skipped.push(place);
                }
            }
        }
        for place in skipped.into_iter().rev() {
            checks.remove(place);
        }
        Ok(KnownChecks {
            checks,
            found: found_keys,
        })
    }
}

/// The checks of a request while they are collected.
struct Collecting<'a> {
    rules: &'a RequestRules,
    head: &'a Head<'a>,
    checks: &'a mut Checks,
    key: KeyBuf,
    /// In a box, because most requests have none.
    look_ups: Option<Box<LookUps>>,
}

impl Collecting<'_> {
    /// Writes the key of the request under a rule.
    #[inline]
    fn extract(&mut self, rule: &CountingRule) -> Extracted {
        self.key.clear();
        rule.key.extract(self.head, &mut self.key)
    }

    /// Whether the conditions of a rule are true.
    fn applies(&self, rule: &CountingRule) -> bool {
        let settings = rule.rule.settings();
        if settings.applies.as_ref().is_some_and(|f| !f(self.head)) {
            return false;
        }
        let is_exempt = settings.exempt.as_ref().is_some_and(|f| f(self.head));
        if is_exempt {
            self.rules.skipped(rule.number);
        }
        !is_exempt
    }

    /// Adds the check of a rule, if the rule applies.
    #[inline]
    fn add(&mut self, rule: &CountingRule) -> Result<(), Box<Refusal>> {
        if rule.has_conditions && !self.applies(rule) {
            return Ok(());
        }
        let (rules, number) = (self.rules, rule.number);
        let computed;
        let terms = match &rule.terms {
            Some(terms) => terms,
            None => {
                computed = rules.terms_for(number, self.head);
                let (cost, limit) = (computed.check.cost(), computed.limit);
                let settings = rule.rule.settings();
                if settings.cost.is_some()
                    && !settings.rule.has_credits()
                    && let Some(limit) = limit.filter(|limit| (1..cost).contains(limit))
                {
                    rules.observer.cost_above_limit(number, cost, limit);
                }
                &computed
            }
        };
        if terms.limit.is_none() && !rule.rule.settings().has_plans_by_key() {
            rules.skipped(number);
            return Ok(());
        }
        let extracted = self.extract(rule);
        match matches!(extracted, Extracted::Key) {
            true => rules.observer.keyed(number),
            false if self.replaces_key(extracted, rule, terms)? => {}
            false => return Ok(()),
        }
        if !rule.depends_on_key {
            let check = rules.limiter.with_key(terms.check, &self.key);
            self.checks.push(check.with_quota(terms.check.quota()));
        } else if let Some(check) = rules.check(terms.check, &self.key) {
            self.checks.push(check);
        } else {
            rules.skipped(number);
            return Ok(());
        }
        if rule.has_id {
            self.identify(rule);
        }
        Ok(())
    }

    /// A request has no key, or not yet. Returns whether it counts by another one, that of all who have none.
    fn replaces_key(
        &mut self,
        extracted: Extracted,
        rule: &CountingRule,
        terms: &Terms,
    ) -> Result<bool, Box<Refusal>> {
        let (rules, number) = (self.rules, rule.number);
        match extracted {
            Extracted::Key => Ok(true),
            // Its key would be asked for a limit of its own.
            Extracted::Nothing(_) if terms.limit.is_none() => {
                rules.skipped(number);
                Ok(false)
            }
            Extracted::Nothing(why) => {
                rules.resolve_missing(number, why, terms.check.policy(), &mut self.key)
            }
            Extracted::Later(answer) => {
                let look_ups = self.look_ups.get_or_insert_default();
                look_ups.push(self.checks.len(), answer);
                self.checks.push(terms.check);
                self.identify(rule);
                Ok(false)
            }
        }
    }

    /// Gives the last check the id of its request, if the rule takes ids and the request has one: what the extractor finds, the method,
    /// and the target with its query.
    fn identify(&mut self, rule: &CountingRule) {
        let (extractor, head) = (&rule.rule.settings().id, self.head);
        let (Some(extractor), Some(check)) = (extractor, self.checks.last_mut()) else {
            return;
        };
        let mut id = KeyBuf::new();
        let is_there = matches!(extractor.extract(head, &mut id), Extracted::Key);
        if !is_there || id.parts().any(|(_, part)| part.len() > LONGEST_ID) {
            return;
        }
        id.push(PartKind::METHOD, head.method.as_str());
        id.push(PartKind::PATH, whole_path(head).as_bytes());
        let query = head.uri.query().unwrap_or_default();
        id.push(PartKind::QUERY_PARAMETER, query);
        // A rule with an extractor of ids is idempotent.
        *check = self
            .rules
            .limiter
            .with_id(*check, &id.into())
            .unwrap_or(*check);
    }
}

tollgate_core::debug_fields!(RequestRules, it => list: it.list);

/// A check of a rule, of no key yet.
pub(super) fn unkeyed(rule: u16, cost: u64) -> Check {
    Check::new(rule, Fingerprint::from_bits(0), cost)
}

/// The key of a request; that of all requests without one, if it has none.
fn key_in(rule: &RequestSettings, head: &Head<'_>) -> Key {
    let mut key = KeyBuf::new();
    let extractor = rule.key.as_ref();
    match extractor.map(|it| it.extract(head, &mut key)) {
        Some(Extracted::Key) => key.into(),
        _ => Key::shared(),
    }
}

/// What happens to requests without a key, for an event.
fn describe(missing: Missing) -> &'static str {
    match missing {
        Missing::Shared => "all of them share one bucket",
        Missing::Skip => "none of them is limited by it",
        Missing::Reject(_) => "all of them are rejected",
    }
}

/// The plans of single keys, by rule and by what stands for a key; empty if no rule selects plans by key. They are there: the rules
/// were validated.
fn plans_by_key(list: &[RequestRule], limiter: &Limiter) -> Arc<[HashMap<u128, u16>]> {
    let mut all = list.iter().map(RequestRule::settings);
    if !all.any(RequestSettings::has_plans_by_key) {
        return Arc::default();
    }
    let store = limiter.rule_store();
    let of_rule = |(index, rule): (usize, &RequestRule)| {
        let rule = rule.settings();
        // A rule has fewer than 65 535 plans.
        let numbers: HashMap<&str, u16> = match rule.plans_by_key.is_empty() {
            true => HashMap::new(),
            false => rule.rule.plan_names().zip(1..).collect(),
        };
        let plans = rule.plans_by_key.iter().filter_map(|(key, plan)| {
            // A rule set has fewer than 65 536 rules.
            let key = store.fingerprint(index as u16, key.as_ref());
            Some((key.bits(), *numbers.get(&**plan)?))
        });
        plans.collect()
    };
    list.iter().enumerate().map(of_rule).collect()
}
