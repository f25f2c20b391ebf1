//! How an allowed request is let through, and what its client is told afterwards.

use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, Response, request, response};
use smallvec::SmallVec;
use tollgate_core::{Checks, Decision, Verdict};

use crate::{
    admission::{Admission, leaves},
    config::Config,
    header::applies,
    judge::Judgement,
};

/// What is told to the client of an admitted request once the inner service has answered.
pub(crate) struct After {
    config: Arc<Config>,
    decision: Decision,
    admission: Option<Admission>,
}

impl Config {
    /// Lets an allowed request through, with what its handler may want, or hands out the rejection.
    #[inline]
    pub(crate) fn admit(
        self: &Arc<Self>,
        head: &mut request::Parts,
        judgement: Judgement,
    ) -> Result<Option<After>, Box<Response<Bytes>>> {
        match judgement {
            Judgement::Pass if !self.attach => Ok(None),
            Judgement::Pass => Ok(Some(self.attach_to(head, Decision::unlimited(0), None))),
            Judgement::Allow { decision, checks } if self.attach => {
                Ok(Some(self.attach_to(head, decision, checks)))
            }
            Judgement::Allow { decision, .. } => Ok(Some(After {
                config: Arc::clone(self),
                decision,
                admission: None,
            })),
            Judgement::Rejected(response) => Err(response),
            Judgement::Deny(denied) => Err(Box::new(self.deny(head, &denied.0, denied.1))),
            Judgement::Refuse(refusal) => Err(Box::new(self.refuse(head, &refusal))),
        }
    }

    fn attach_to(
        self: &Arc<Self>,
        head: &mut request::Parts,
        decision: Decision,
        checks: Option<Box<Checks>>,
    ) -> After {
        let admission = Admission::new(
            Arc::clone(self),
            decision.clone(),
            checks.map_or_else(Checks::new, |checks| *checks),
            self.asks_in_handler.then(|| head_of(head)),
        );
        head.extensions.insert(admission.clone());
        After {
            config: Arc::clone(self),
            decision,
            admission: Some(admission),
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
        let rules = config.rules.set();
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
