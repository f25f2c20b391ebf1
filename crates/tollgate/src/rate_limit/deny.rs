//! How a denied request is answered.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, request};
use tollgate_core::{Decision, Reason};

use crate::{
    header::{
        applies,
        name::{GRPC_STATUS, RATELIMIT, RATELIMIT_POLICY},
        retry_after,
    },
    key::NoKey,
    rate_limit::config::Config,
    rate_limit::request_rules::Refusal,
    rejection::Denial,
};

/// What clients of gRPC take in all, less what the server and layers outside may add: 8 KiB, a field being its name, its
/// value and 32 bytes.
const GRPC_ROOM: usize = 7 * 1_024;

/// So many rules fit, whatever their names.
const FEW: usize = 8;

/// An extension of a response: a denial by a quiet layer. Layers around it write nothing on it either: that they have
/// something left would say who has denied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet;

impl Config {
    /// The response to a request that a rule rejects because it has no key.
    #[cold]
    pub(crate) fn refuse(&self, head: &request::Parts, refusal: &Refusal) -> Response<Bytes> {
        let decision = match refusal.why {
            NoKey::LookUpFailed => Decision::without_answer(),
            _ => Decision::without_key(),
        };
        self.rules.refused(refusal);
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
            if decision.verdicts().len() > FEW {
                make_room(response.headers_mut());
            }
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

    /// Gives the response its decision, where anybody asked for decisions, and what keeps it quiet, where it is: either costs
    /// an allocation or two.
    fn carry(&self, mut response: Response<Bytes>, decision: &Decision) -> Response<Bytes> {
        if self.quiet {
            response.extensions_mut().insert(Quiet);
        }
        if self.attach {
            response.extensions_mut().insert(decision.clone());
        }
        response
    }
}

/// Takes the quota's fields off a gRPC response that would be too long with them: its client would drop the whole of it,
/// the status and the wait included.
fn make_room(fields: &mut HeaderMap) {
    let sizes = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 32);
    if fields.contains_key(GRPC_STATUS) && sizes.sum::<usize>() > GRPC_ROOM {
        fields.remove(RATELIMIT);
        fields.remove(RATELIMIT_POLICY);
    }
}
