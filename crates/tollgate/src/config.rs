//! What a layer knows: its rules on their store, and how it answers.

use std::{fmt, num::NonZeroU32, sync::Arc};

use http::StatusCode;
use tollgate_core::{Limiter, Rule, RuleError, RuleErrorKind, RuleSet, Store};

use crate::{
    header::{HeaderStyle, Headers},
    key::KeyExtractor,
    observe::Observer,
    rejection::{HttpRejection, Rejection},
    rule::{Missing, RequestRule},
};

/// The rules of a layer on their store, and how it answers.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) limiter: Limiter,
    /// In the order of the rule set.
    pub(crate) rules: Arc<[RequestRule]>,
    pub(crate) headers: Arc<Headers>,
    style: HeaderStyle,
    pub(crate) quiet: bool,
    pub(crate) rejection: Rejection,
    pub(crate) denied_status: StatusCode,
    /// The two above, with what can be prepared.
    pub(crate) responses: Arc<HttpRejection>,
    pub(crate) jitter_percent: u8,
    pub(crate) attach: bool,
    pub(crate) count_preflight: bool,
    /// Whether a handler may ask rules of its own.
    pub(crate) asks_in_handler: bool,
    pub(crate) observer: Arc<Observer>,
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

    /// Whether clients are told of their budgets.
    pub(crate) fn tells_budget(&self) -> bool {
        !self.quiet && self.style != HeaderStyle::NONE
    }

    /// The extractor of the rule with this name.
    pub(crate) fn extractor(&self, name: &str) -> Option<&dyn KeyExtractor> {
        let rule = self.rules.iter().find(|rule| rule.rule.name() == name)?;
        rule.key.as_deref()
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
