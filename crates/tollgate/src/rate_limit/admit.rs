//! How an allowed request is let through, and what comes of it afterwards: what its client is told, or what is given back.

use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, Response, request, response};
use smallvec::SmallVec;
use tollgate_core::{Checks, Decision, Verdict};

use crate::{
    header::applies,
    rate_limit::admission::{Admission, leaves},
    rate_limit::config::Config,
    rate_limit::decide::Judgement,
    rate_limit::deny::Quiet,
    rate_limit::refund::Refund,
};

/// What remains to be done about an admitted request once the inner service has answered.
pub(crate) struct After {
    config: Arc<Config>,
    decision: Decision,
    /// What was taken, unless the admission knows.
    checks: Checks,
    admission: Option<Admission>,
    /// Whether the request is marked, to see whether it meets these rules again.
    marked: bool,
}

impl Config {
    /// Lets an allowed request through, with what its handler may want, or hands out the rejection.
    // A decision and its checks are some 400 bytes: inlined, they are moved once on their way into the future.
    #[inline(always)]
    pub(crate) fn admit(
        self: &Arc<Self>,
        head: &mut request::Parts,
        judgement: Judgement,
        checks: Checks,
    ) -> Result<Option<After>, Box<Response<Bytes>>> {
        match judgement {
            Judgement::Pass if !self.attach => Ok(None),
            // Nothing was asked, or nobody wants to know.
            Judgement::Pass => Ok(Some(self.attach_to(head, Decision::unlimited(0), checks))),
            Judgement::Allow(decision) if self.attach => {
                Ok(Some(self.attach_to(head, decision, checks)))
            }
            Judgement::Allow(decision) => Ok(Some(After {
                marked: self.applied.mark(head, decision.at()),
                config: Arc::clone(self),
                decision,
                checks,
                admission: None,
            })),
            Judgement::Rejected(response) => Err(response),
            Judgement::Deny(denied) => Err(self.deny_later(head, &denied)),
            Judgement::Refuse(refusal) => Err(Box::new(self.refuse(head, &refusal))),
        }
    }

    #[inline(never)]
    fn deny_later(&self, head: &request::Parts, denied: &(Decision, u64)) -> Box<Response<Bytes>> {
        Box::new(self.deny(head, &denied.0, denied.1))
    }

    #[inline(never)]
    fn attach_to(
        self: &Arc<Self>,
        head: &mut request::Parts,
        decision: Decision,
        checks: Checks,
    ) -> After {
        let admission = Admission::new(
            Arc::clone(self),
            decision.clone(),
            checks,
            self.asks_in_handler.then(|| head_of(head)),
        );
        head.extensions.insert(admission.clone());
        After {
            marked: self.applied.mark(head, decision.at()),
            config: Arc::clone(self),
            decision,
            checks: Checks::new(),
            admission: Some(admission),
        }
    }
}

impl After {
    /// The inner service has answered: gives back what the request took where it was not served, or writes what the client
    /// is told of its budget.
    #[inline]
    pub(crate) fn answered(self, head: &mut response::Parts) {
        if self.marked {
            self.config.applied.answered();
        }
        if head.extensions.get::<Refund>().is_some() {
            return self.give_back();
        }
        self.tell(head);
    }

    /// The inner service has failed.
    #[cold]
    pub(crate) fn failed(self) {
        if self.marked {
            self.config.applied.answered();
        }
        self.give_back();
    }

    #[cold]
    fn give_back(&self) {
        match &self.admission {
            Some(admission) => admission.give_back(),
            None => self.config.rules.give_back(&self.checks, &self.decision),
        }
    }

    /// Writes what the client is told of its budget.
    #[inline]
    fn tell(&self, head: &mut response::Parts) {
        let config = &*self.config;
        let later = self.admission.as_ref().map(Admission::later);
        if config.quiet {
            let denied = |later: &Vec<Decision>| !later.iter().all(Decision::is_allowed);
            if later.as_ref().is_some_and(denied) {
                // A handler's denial becomes a response of its own, as a `tonic::Status` does.
                head.extensions.insert(Quiet);
            }
            return;
        }
        if !config.tells_budget()
            || !applies(head.status, &head.headers)
            || head.extensions.get::<Quiet>().is_some()
        {
            return;
        }
        let rules = config.rules.set();
        match later {
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

/// In the order of the rules. Of several verdicts of one rule the one that leaves least: a list that names a policy twice
/// says nothing.
fn one_for_each_rule<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> SmallVec<[Verdict; 8]> {
    let mut all: SmallVec<[Verdict; 8]> = verdicts.copied().collect();
    all.sort_by_key(|verdict| (verdict.rule(), leaves(verdict)));
    all.dedup_by_key(|verdict| verdict.rule());
    all
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
