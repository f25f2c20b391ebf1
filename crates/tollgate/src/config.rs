//! What a layer knows, and how it judges a request.

use std::{fmt, num::NonZeroU32, sync::Arc};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Response, StatusCode, header, request, response};
use smallvec::SmallVec;
use tollgate_core::{
    Check, Checks, Decision, Fingerprint, KeyBuf, Limiter, Mode, Outcome, PartKind, Pending,
    Reason, Rule, RuleError, RuleErrorKind, RuleSet, Step, Store, Verdict,
};

use crate::{
    admission::Admission,
    header::{HeaderStyle, Headers, applies, retry_after},
    key::{Extracted, NoKey},
    observe::{Observer, Timer},
    rejection::{Denial, HttpRejection, Rejection},
    rule::{Missing, RequestRule},
};

/// The rules of a layer on their store, and how it answers.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) limiter: Limiter,
    /// In the order of the rule set.
    rules: Arc<[RequestRule]>,
    headers: Arc<Headers>,
    style: HeaderStyle,
    pub(crate) quiet: bool,
    rejection: Rejection,
    denied_status: StatusCode,
    /// The two above, with what can be prepared.
    responses: Arc<HttpRejection>,
    pub(crate) jitter_percent: u8,
    pub(crate) attach: bool,
    pub(crate) count_preflight: bool,
    /// Whether a handler may ask rules of its own.
    asks_in_handler: bool,
    observer: Arc<Observer>,
}

/// What was decided about a request.
#[derive(Debug)]
pub(crate) struct Judgement {
    pub(crate) decision: Decision,
    /// Why there is no key, where a rule rejects the request for that.
    refusal: Option<Box<Refusal>>,
    /// What was asked; kept only where a handler may want it.
    checks: Option<Box<Checks>>,
    /// Spreads the jitter of `Retry-After` over clients.
    seed: u64,
}

/// A request without a key that a rule rejects.
#[derive(Debug)]
struct Refusal {
    rule: u16,
    status: StatusCode,
    why: NoKey,
}

/// What is told to the client of an admitted request once the inner service has answered.
pub(crate) struct After {
    config: Arc<Config>,
    decision: Decision,
    admission: Option<Admission>,
}

/// The checks of a request, as far as they are known.
struct Asked {
    checks: Checks,
    /// Checks whose key is being looked up; their places in `checks` are held by checks of no key.
    later: Vec<(usize, Pending<Result<KeyBuf, NoKey>>)>,
}

impl Config {
    pub(crate) fn new(store: &dyn Store, rules: Vec<RequestRule>) -> Result<Self, RuleError> {
        for rule in &rules {
            validate(rule)?;
        }
        let set = RuleSet::new(rules.iter().map(|rule| rule.rule.clone()))?;
        let style = HeaderStyle::DRAFT_11;
        let rejection = Rejection::problem();
        let denied_status = StatusCode::TOO_MANY_REQUESTS;
        Ok(Self {
            responses: Arc::new(HttpRejection::new(rejection.clone(), &set, denied_status)),
            headers: Arc::new(Headers::new(style, &set)),
            observer: Arc::new(Observer::new(&set)),
            limiter: Limiter::bind(store, set, NonZeroU32::MIN)?,
            asks_in_handler: rules.iter().any(|rule| rule.key.is_none()),
            rules: rules.into(),
            style,
            quiet: false,
            rejection,
            denied_status,
            jitter_percent: 0,
            attach: false,
            count_preflight: false,
        })
    }

    pub(crate) fn set_headers(&mut self, style: HeaderStyle) {
        self.style = style;
        self.headers = Arc::new(Headers::new(style, self.limiter.rules()));
    }

    pub(crate) fn set_rejection(&mut self, rejection: Rejection) {
        self.rejection = rejection;
        self.prepare_responses();
    }

    pub(crate) fn set_denied_status(&mut self, status: StatusCode) {
        self.denied_status = status;
        self.prepare_responses();
    }

    fn prepare_responses(&mut self) {
        self.responses = Arc::new(HttpRejection::new(
            self.rejection.clone(),
            self.limiter.rules(),
            self.denied_status,
        ));
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Decides about a request by its head. Nothing was told to anybody yet.
    #[inline]
    pub(crate) fn judge(self: &Arc<Self>, head: &request::Parts) -> Step<Judgement> {
        let timer = Timer::start();
        if head.method == Method::OPTIONS && !self.count_preflight && is_preflight(&head.headers) {
            self.observer.preflight();
            return Step::Ready(Judgement::pass());
        }
        let mut asked = Asked {
            checks: Checks::new(),
            later: Vec::new(),
        };
        if let Err(refusal) = self.ask(head, &mut asked) {
            return Step::Ready(Judgement::refuse(refusal));
        }
        if !asked.later.is_empty() {
            return Step::Wait(Pending::new(Arc::clone(self).look_up(asked, timer)));
        }
        if asked.checks.is_empty() {
            return Step::Ready(Judgement::pass());
        }
        match self.limiter.acquire(&asked.checks) {
            Step::Ready(decision) => Step::Ready(self.judgement(&asked.checks, decision, timer)),
            Step::Wait(answer) => {
                let config = Arc::clone(self);
                Step::Wait(Pending::new(async move {
                    config.judgement(&asked.checks, answer.await, timer)
                }))
            }
        }
    }

    /// Collects the checks of a request.
    #[inline]
    fn ask(&self, head: &request::Parts, asked: &mut Asked) -> Result<(), Box<Refusal>> {
        let mut key = KeyBuf::new();
        for (place, request_rule) in self.rules.iter().enumerate() {
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
        match self.rules[usize::from(rule)].missing {
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
            Missing::Reject(_) if !self.limiter.rules().enforces(usize::from(rule)) => {
                self.observer.skipped(rule);
                Ok(false)
            }
            Missing::Reject(status) => Err(Box::new(Refusal { rule, status, why })),
        }
    }

    /// Waits for the keys that are looked up, in the order of the rules, then asks the store.
    async fn look_up(self: Arc<Self>, mut asked: Asked, timer: Timer) -> Judgement {
        let mut skipped: SmallVec<[usize; 4]> = SmallVec::new();
        for (place, answer) in asked.later {
            let number = asked.checks[place].rule();
            let mut key = KeyBuf::new();
            match answer.await {
                Ok(found) => key = found,
                Err(why) => match self.resolve_missing(number, why, &mut key) {
                    Ok(true) => {}
                    Ok(false) => {
                        skipped.push(place);
                        continue;
                    }
                    Err(refusal) => return Judgement::refuse(refusal),
                },
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
        if asked.checks.is_empty() {
            return Judgement::pass();
        }
        let decision = self.limiter.acquire(&asked.checks).await;
        self.judgement(&asked.checks, decision, timer)
    }

    #[inline]
    fn judgement(&self, checks: &Checks, decision: Decision, timer: Timer) -> Judgement {
        self.observer
            .decided(self.limiter.bound().as_ref(), checks, &decision, timer);
        Judgement {
            refusal: None,
            checks: self.attach.then(|| Box::new(checks.clone())),
            seed: if decision.is_allowed() {
                0
            } else {
                seed_of(checks)
            },
            decision,
        }
    }

    /// Lets an allowed request through, with what its handler may want, or makes the rejection.
    #[inline]
    pub(crate) fn admit(
        self: &Arc<Self>,
        head: &mut request::Parts,
        judgement: Judgement,
    ) -> Result<Option<After>, Box<Response<Bytes>>> {
        if !judgement.decision.is_allowed() {
            return Err(Box::new(self.reject(head, judgement)));
        }
        if !self.attach {
            let tells = self.tells_budget() && !judgement.decision.verdicts().is_empty();
            return Ok(tells.then(|| After {
                config: Arc::clone(self),
                decision: judgement.decision,
                admission: None,
            }));
        }
        let admission = Admission::new(
            Arc::clone(self),
            judgement.decision.clone(),
            judgement.checks.map_or_else(Checks::new, |checks| *checks),
            self.asks_in_handler.then(|| head_of(head)),
        );
        head.extensions.insert(admission.clone());
        Ok(Some(After {
            config: Arc::clone(self),
            decision: judgement.decision,
            admission: Some(admission),
        }))
    }

    fn tells_budget(&self) -> bool {
        !self.quiet && self.style != HeaderStyle::NONE
    }

    fn reject(&self, head: &request::Parts, judgement: Judgement) -> Response<Bytes> {
        let Judgement {
            decision,
            refusal,
            seed,
            ..
        } = judgement;
        let (status, why) = match refusal {
            Some(refusal) => {
                self.observer.no_key(refusal.rule);
                (refusal.status, Some(refusal.why))
            }
            None => (self.status_of(&decision), None),
        };
        let mut response = self.denial(head, &decision, status, why.as_ref(), seed);
        // A rejection may be a redirect: to a page that says when to come back.
        if self.tells_budget() && applies(response.status(), response.headers()) {
            let rules = self.limiter.rules();
            self.headers.write(
                response.headers_mut(),
                decision.verdicts(),
                rules,
                decision.at(),
            );
        }
        response.extensions_mut().insert(decision);
        response
    }

    fn status_of(&self, decision: &Decision) -> StatusCode {
        match decision.reason() {
            Some(Reason::StoreFailed) => StatusCode::SERVICE_UNAVAILABLE,
            _ => self.denied_status,
        }
    }

    /// The response to a denial, with `Retry-After`, without what is told of budgets.
    fn denial(
        &self,
        head: &request::Parts,
        decision: &Decision,
        status: StatusCode,
        why: Option<&NoKey>,
        seed: u64,
    ) -> Response<Bytes> {
        let delay = retry_after::delay(decision.retry(), self.jitter_percent, seed);
        let rules = self.limiter.rules();
        let denial = match why {
            Some(why) => Denial::without_key(head, decision, rules, status, why),
            None => Denial::new(head, decision, rules, status),
        };
        let denial = denial.with_delay(delay).quiet(self.quiet);
        let mut response = self.responses.respond(&denial);
        if let Some(delay) = delay {
            retry_after::write(response.headers_mut(), delay);
        }
        response
    }

    /// The response to a denial that a handler has asked for.
    pub(crate) fn deny_in_handler(
        &self,
        head: &request::Parts,
        decision: &Decision,
        seed: u64,
    ) -> Response<Bytes> {
        let mut response = self.denial(head, decision, self.status_of(decision), None, seed);
        response.extensions_mut().insert(decision.clone());
        response
    }

    /// The rule that is left to handlers, by its name.
    pub(crate) fn in_handler(&self, name: &str) -> Option<(u16, &RequestRule)> {
        let place = self
            .rules
            .iter()
            .position(|rule| rule.key.is_none() && rule.rule.name() == name)?;
        // A rule set has fewer than 65 536 rules.
        Some((place as u16, &self.rules[place]))
    }

    pub(crate) fn names_in_handler(&self) -> impl Iterator<Item = &str> {
        self.rules
            .iter()
            .filter(|rule| rule.key.is_none())
            .map(|rule| rule.rule.name())
    }
}

impl Judgement {
    /// Nothing limits the request.
    fn pass() -> Self {
        Self {
            decision: Decision::unlimited(0),
            refusal: None,
            checks: None,
            seed: 0,
        }
    }

    fn refuse(refusal: Box<Refusal>) -> Self {
        Self {
            decision: Decision::without_key(),
            refusal: Some(refusal),
            ..Self::pass()
        }
    }
}

impl After {
    /// Writes what the client is told of its budget.
    #[inline]
    pub(crate) fn tell(self, head: &mut response::Parts) {
        let config = &*self.config;
        if !config.tells_budget() || !applies(head.status, &head.headers) {
            return;
        }
        let rules = config.limiter.rules();
        match self.admission.as_ref().map(Admission::later) {
            Some(later) if !later.is_empty() => {
                let decisions = later.iter().chain([&self.decision]);
                let all = one_for_each_rule(decisions.flat_map(Decision::verdicts));
                let at = later.iter().map(Decision::at).max().unwrap_or_default();
                config.headers.write(&mut head.headers, &all, rules, at);
            }
            _ => config.headers.write(
                &mut head.headers,
                self.decision.verdicts(),
                rules,
                self.decision.at(),
            ),
        }
    }
}

/// The same for the same client, and another for each: all keys count, since some may be everybody's.
fn seed_of(checks: &[Check]) -> u64 {
    checks.iter().fold(0, |seed: u64, check| {
        // Two rules by one key must not cancel each other out.
        seed.rotate_left(7) ^ check.key().bits() as u64
    })
}

/// In the order of the rules. Of several verdicts of one rule the one that leaves least: a list that names a policy twice
/// says nothing.
fn one_for_each_rule<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> SmallVec<[Verdict; 8]> {
    let leaves = |verdict: &Verdict| {
        (
            !verdict.has_numbers(),
            verdict.outcome() != Outcome::Deny,
            verdict.remaining(),
        )
    };
    let mut all: SmallVec<[Verdict; 8]> = verdicts.copied().collect();
    all.sort_by_key(|verdict| (verdict.rule(), leaves(verdict)));
    all.dedup_by_key(|verdict| verdict.rule());
    all
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("rules", &self.rules)
            .field("headers", &self.style)
            .field("rejection", &self.rejection)
            .finish_non_exhaustive()
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

fn is_preflight(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// A copy of a head without its extensions.
fn head_of(head: &request::Parts) -> request::Parts {
    let (mut copy, ()) = http::Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.version = head.version;
    copy.headers = head.headers.clone();
    copy.extensions = Extensions::new();
    copy
}
