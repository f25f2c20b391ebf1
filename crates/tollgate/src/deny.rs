//! How a denied request is answered.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, request};
use tollgate_core::{Decision, Reason};

use crate::{
    config::Config,
    header::{applies, retry_after},
    rejection::Denial,
    request_rules::Refusal,
};

impl Config {
    /// The response to a request that a rule rejects because it has no key.
    #[cold]
    pub(crate) fn refuse(&self, head: &request::Parts, refusal: &Refusal) -> Response<Bytes> {
        self.rules.observer.no_key(refusal.rule);
        let decision = Decision::without_key();
        let rules = self.rules.set();
        let denial = Denial::without_key(head, &decision, rules, refusal.status, &refusal.why)
            .quiet(self.quiet);
        let response = self.responses.respond(&denial, self.protocol.of(head));
        self.carry(response, &decision)
    }

    /// The response to a denial, with what the client is told of its budget. `seed` spreads the jitter over clients.
    pub(crate) fn deny(
        &self,
        head: &request::Parts,
        decision: &Decision,
        seed: u64,
    ) -> Response<Bytes> {
        let mut response = self.deny_without_budget(head, decision, seed);
        // A rejection of one's own may be a redirect, to a page that says when to come back, or cacheable.
        if self.tells_budget()
            && (!self.rejection.is_custom() || applies(response.status(), response.headers()))
        {
            self.headers.write(
                response.headers_mut(),
                decision.verdicts(),
                self.rules.set(),
                decision.at(),
            );
        }
        response
    }

    /// The response to a denial, with `Retry-After`. A handler's denial passes through the layer once more, which then
    /// tells of all budgets together.
    pub(crate) fn deny_without_budget(
        &self,
        head: &request::Parts,
        decision: &Decision,
        seed: u64,
    ) -> Response<Bytes> {
        let delay = retry_after::delay(decision.retry(), self.jitter_percent, seed);
        let denial = self.denial(head, decision, delay);
        let mut response = self.responses.respond(&denial, self.protocol.of(head));
        if let Some(delay) = delay {
            retry_after::write(response.headers_mut(), delay);
        }
        self.carry(response, decision)
    }

    /// The end of a response that has begun when its call is denied: the status in gRPC.
    pub(crate) fn deny_in_trailers(
        &self,
        head: &request::Parts,
        decision: &Decision,
        seed: u64,
    ) -> HeaderMap {
        let delay = retry_after::delay(decision.retry(), self.jitter_percent, seed);
        self.responses.trailers(&self.denial(head, decision, delay))
    }

    fn denial<'a>(
        &'a self,
        head: &'a request::Parts,
        decision: &'a Decision,
        delay: Option<Duration>,
    ) -> Denial<'a> {
        let status = match decision.reason() {
            Some(Reason::StoreFailed) => StatusCode::SERVICE_UNAVAILABLE,
            _ => self.denied_status,
        };
        Denial::new(head, decision, self.rules.set(), status)
            .with_delay(delay)
            .quiet(self.quiet)
    }

    /// Gives the response its decision, where anybody asked for decisions: it costs an allocation or two.
    fn carry(&self, mut response: Response<Bytes>, decision: &Decision) -> Response<Bytes> {
        if self.attach {
            response.extensions_mut().insert(decision.clone());
        }
        response
    }
}
