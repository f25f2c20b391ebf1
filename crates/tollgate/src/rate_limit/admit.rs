//! Admitting an allowed request, and what follows when its response comes.

use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, Response, request, response};
use smallvec::SmallVec;
use tollgate_core::{Checks, Decision, Verdict};

use crate::{
    header::applies,
    rate_limit::{
        admission::{Admission, strictness},
        config::Config,
        decide::Decided,
        deny::{QuotaHidden, deny, reject},
        refund::Refund,
    },
};

/// An admitted request, whose response is still to come.
pub(crate) struct Admitted {
    config: Arc<Config>,
    decision: Decision,
    /// The checks, unless `admission` has them.
    checks: Checks,
    admission: Option<Admission>,
    /// Whether the request is marked to detect that these rules count it again.
    marked: bool,
}

/// Lets an allowed request through, with an [`Admission`] if configured, or returns the rejection.
// A decision and its checks are some 400 bytes: inlined, they are moved once on their way into the future.
#[inline(always)]
pub(crate) fn admit(
    config: &Arc<Config>,
    head: &mut request::Parts,
    decided: Decided,
    checks: Checks,
) -> Result<Option<Admitted>, Box<Response<Bytes>>> {
    match decided {
        Decided::Pass if !config.attach_decision => Ok(None),
        Decided::Pass => Ok(Some(attach(config, head, Decision::unlimited(0), checks))),
        Decided::Allow(decision) if config.attach_decision => {
            Ok(Some(attach(config, head, decision, checks)))
        }
        Decided::Allow(decision) => Ok(Some(Admitted {
            marked: config.duplicates.mark(head, decision.at()),
            config: Arc::clone(config),
            decision,
            checks,
            admission: None,
        })),
        Decided::Rejected(response) => Err(response),
        Decided::Deny(denied) => Err(deny_later(config, head, &denied)),
        Decided::Refuse(refusal) => Err(Box::new(reject(config, head, &refusal))),
    }
}

#[inline(never)]
fn deny_later(
    config: &Config,
    head: &request::Parts,
    (decision, seed): &(Decision, u64),
) -> Box<Response<Bytes>> {
    Box::new(deny(config, head, decision, *seed))
}

#[inline(never)]
fn attach(
    config: &Arc<Config>,
    head: &mut request::Parts,
    decision: Decision,
    checks: Checks,
) -> Admitted {
    let admission = Admission::new(
        Arc::clone(config),
        decision.clone(),
        checks,
        config
            .is_checked_in_handler
            .then(|| without_extensions(head)),
    );
    head.extensions.insert(admission.clone());
    Admitted {
        marked: config.duplicates.mark(head, decision.at()),
        config: Arc::clone(config),
        decision,
        checks: Checks::new(),
        admission: Some(admission),
    }
}

impl Admitted {
    /// The inner service has responded: refunds the request, or writes the quota's header fields.
    #[inline]
    pub(crate) fn on_response(self, head: &mut response::Parts) {
        if self.marked {
            self.config.duplicates.on_response();
        }
        if head.extensions.get::<Refund>().is_some() {
            return self.refund();
        }
        self.write_headers(head);
    }

    /// The inner service has failed.
    #[cold]
    pub(crate) fn on_error(self) {
        if self.marked {
            self.config.duplicates.on_response();
        }
        self.refund();
    }

    #[cold]
    fn refund(&self) {
        match &self.admission {
            Some(admission) => admission.refund(),
            None => self.config.rules.refund(&self.checks, &self.decision),
        }
    }

    #[inline]
    fn write_headers(&self, head: &mut response::Parts) {
        let config = &*self.config;
        let in_handler = self.admission.as_ref().map(Admission::take_decisions);
        if config.hide_quota {
            let denied = |decisions: &Vec<Decision>| !decisions.iter().all(Decision::is_allowed);
            if in_handler.as_ref().is_some_and(denied) {
                // A handler's denial becomes a response of its own, as a `tonic::Status` does.
                head.extensions.insert(QuotaHidden);
            }
            return;
        }
        if !config.shows_quota()
            || !applies(head.status, &head.headers)
            || head.extensions.get::<QuotaHidden>().is_some()
        {
            return;
        }
        let rules = config.rules.set();
        match in_handler {
            Some(in_handler) if !in_handler.is_empty() => {
                let decisions = in_handler.iter().chain([&self.decision]);
                let all = one_per_rule(decisions.flat_map(Decision::verdicts));
                let at = in_handler
                    .iter()
                    .map(Decision::at)
                    .max()
                    .unwrap_or_default();
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

/// In the order of the rules, with the verdict that leaves least for each: a list must not name a policy twice.
fn one_per_rule<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> SmallVec<[Verdict; 8]> {
    let mut all: SmallVec<[Verdict; 8]> = verdicts.copied().collect();
    all.sort_by_key(|verdict| (verdict.rule(), strictness(verdict)));
    all.dedup_by_key(|verdict| verdict.rule());
    all
}

/// A copy of a head without its extensions.
fn without_extensions(head: &request::Parts) -> request::Parts {
    let (mut copy, ()) = http::Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.version = head.version;
    copy.headers = head.headers.clone();
    copy.extensions = Extensions::new();
    copy
}
