//! A few rules, and denials by them.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::AUTHORIZATION, request::Parts};
use serde_json::Value;
use tollgate_core::{
    Decision, MINUTE, Quota, Retry, Rule, RuleSet, Source, Verdict, algorithm::Assessment,
};

use crate::{
    head::Head,
    key::NoKey,
    protocol::WireProtocol,
    rejection::{Denial, Rejection, Responses},
};

pub(super) const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

pub(super) struct Scene {
    pub(super) head: Parts,
    pub(super) rules: RuleSet,
}

impl Scene {
    pub(super) fn new() -> Self {
        let request = Request::get("/search?secret=hunter2")
            .header(AUTHORIZATION, "Bearer hunter2")
            .body(())
            .expect("a request");
        let rules = [
            Rule::new("per-min", Quota::fixed_window(100, MINUTE))
                .plan("gold", Quota::fixed_window(500, MINUTE)),
            Rule::new("per-day", Quota::fixed_window(1_000, 1_440 * MINUTE)),
            Rule::new("tried", Quota::fixed_window(1, MINUTE)).shadow(),
        ];
        Self {
            head: request.into_parts().0,
            rules: RuleSet::new(rules).expect("valid rules"),
        }
    }

    pub(super) fn decide(&self, verdicts: impl IntoIterator<Item = Verdict>) -> Decision {
        Decision::new(1, verdicts, |verdict| self.rules.enforces(verdict.rule()))
    }

    pub(super) fn denial<'a>(&'a self, decision: &'a Decision) -> Denial<'a> {
        Denial::new(Head::from(&self.head), decision, &self.rules, TOO_MANY)
    }

    /// A denial because of a missing key.
    pub(super) fn keyless<'a>(
        &'a self,
        nothing: &'a Decision,
        status: StatusCode,
        why: &'a NoKey,
    ) -> Denial<'a> {
        Denial {
            no_key: Some(why),
            ..Denial::new(Head::from(&self.head), nothing, &self.rules, status)
        }
    }

    pub(super) fn respond(&self, rejection: Rejection, denial: &Denial<'_>) -> Response<Bytes> {
        Responses::new(rejection, &self.rules, TOO_MANY).respond(denial, WireProtocol::Http)
    }

    pub(super) fn body(&self, rejection: Rejection, denial: &Denial<'_>) -> String {
        let body = self.respond(rejection, denial).into_body();
        String::from_utf8(body.into()).expect("UTF-8")
    }

    pub(super) fn value(&self, rejection: Rejection, denial: &Denial<'_>) -> Value {
        serde_json::from_str(&self.body(rejection, denial)).expect("JSON")
    }
}

impl Denial<'_> {
    pub(super) fn hidden(mut self) -> Self {
        self.hide_quota = true;
        self
    }
}

pub(super) fn denied(rule: u16, plan: u16, retry: Retry) -> Verdict {
    let answer = Assessment::new(false, 0, 16_000_001, retry);
    Verdict::new(rule, plan, answer, Source::Store)
}

/// 16.000001 s.
pub(super) const SOON: Retry = Retry::after_micros(16_000_001);
