//! Which rules a request meets, at what cost, and what the decision would be. Nothing is taken.

use std::net::IpAddr;

use http::{Method, Request, Uri, request::Parts};
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::{
    Check, Decision,
    decision::{Outcome, Reason, Retry},
    key::PeerAddr,
    siblings::{Inspection, RuleEffect},
};
use tollgate_core::Mode;
use tollgate_rules::operators::{Explained, Explanation, QuotaOrigin};

use crate::{
    client::{header, verdict_json},
    console::Shared,
    response::{Answer, Wrong},
};

/// A request, as an operator describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Described {
    method: String,
    path: String,
    /// A header a line.
    headers: String,
    client_ip: String,
}

impl Described {
    fn head(&self) -> Result<Parts, Wrong> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = Method::from_bytes(self.method.trim().as_bytes())
            .map_err(|_| Wrong::input(format!("{:?} is no method, as POST is", self.method)))?;
        let path = self.path.trim();
        let uri = path.parse::<Uri>().ok().filter(|_| path.starts_with('/'));
        head.uri = uri.ok_or_else(|| {
            Wrong::input(format!("{path:?} is no path: it begins with a slash, and has other letters escaped, as /search?q=a%20b"))
        })?;
        for line in self.headers.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = header(line).ok_or_else(|| {
                // Without its value, which may be a secret.
                let name = line.split(':').next().unwrap_or_default();
                Wrong::input(format!(
                    "the line {name:?} is no header; write it as x-api-key: acme"
                ))
            })?;
            head.headers.append(name, value);
        }
        if !self.client_ip.trim().is_empty() {
            let address = self.client_ip.trim().parse::<IpAddr>().map_err(|_| {
                Wrong::input(format!(
                    "{:?} is no address, as 192.0.2.7 or 2001:db8::1 are",
                    self.client_ip
                ))
            })?;
            head.extensions.insert(PeerAddr((address, 0).into()));
        }
        Ok(head)
    }
}

/// What the rules of each layer would do with a request.
pub(crate) async fn explain(shared: &Shared, request: &Described) -> Answer {
    let head = request.head()?;
    let explained = shared
        .parts
        .rules
        .as_ref()
        .map(|rules| rules.document().explain(&head));
    let mut layers = Vec::new();
    for (name, layer) in &shared.parts.layers {
        let known = explained.as_deref().unwrap_or_default();
        let mut of_layer = of_layer(&layer.inspection(), &head, known).await;
        of_layer["layer"] = json!(name);
        layers.push(of_layer);
    }
    Ok(json!({ "layers": layers }))
}

async fn of_layer(inspection: &Inspection, head: &Parts, explained: &[Explanation]) -> Value {
    let limiter = inspection.limiter();
    let (mut shown, mut rejects) = (Vec::new(), None);
    let (mut counting, mut checks) = (Vec::new(), Vec::<Check>::new());
    for (index, rule) in limiter.rules().given().iter().enumerate() {
        let of_document = explained
            .iter()
            .find(|it| it.limiter_rule.name() == rule.name());
        let mut entry = json!({ "rule": rule.name(), "limit": rule.quota().to_string() });
        let effect = inspection.effect(index, head).await;
        // A document knows more: by which rule of its group another one is displaced.
        let why =
            of_document.filter(|it| !it.counts() && matches!(effect, RuleEffect::ConditionFails));
        entry["counts"] = json!(matches!(effect, RuleEffect::Counts(_)));
        entry["why"] = match (&effect, why) {
            (_, Some(why)) => json!(why.outcome.to_string()),
            (RuleEffect::Counts(_), _) if *rule.mode() == Mode::Shadow => {
                json!("counts, as a shadow")
            }
            (RuleEffect::Counts(_), _) => json!("counts"),
            (RuleEffect::ConditionFails, _) => json!("its condition does not hold"),
            (RuleEffect::Ignores(why), _) => json!(why),
            (RuleEffect::Rejects(status), _) => {
                let status = status.as_u16();
                json!(format!(
                    "the request has no key, and is rejected with {status}"
                ))
            }
        };
        if let RuleEffect::Rejects(status) = effect {
            rejects.get_or_insert((rule.name().to_owned(), status));
        }
        if let RuleEffect::Counts(check) = effect {
            entry["units"] = json!(check.cost());
            entry["key"] = json!(check.key().prefix().to_string());
            counting.push(index);
            checks.push(check);
        }
        if let Some(of_document) = of_document {
            entry["notes"] = json!(notes(of_document));
        }
        shown.push(entry);
    }
    let decision = limiter.peek(&checks).await;
    for (index, verdict) in counting.into_iter().zip(decision.verdicts()) {
        let rule = limiter.rules().rules().get(verdict.rule());
        let Some((entry, rule)) = shown.get_mut(index).zip(rule) else {
            continue;
        };
        entry["verdict"] = verdict_json(rule, verdict);
        entry["limit"] = entry["verdict"]["limit"].clone();
    }
    let outcome = match rejects {
        Some((rule, status)) => format!(
            "Rejected with {} by {rule}: the request has no key.",
            status.as_u16()
        ),
        None if checks.is_empty() => "Passes: no rule counts it.".to_owned(),
        None => in_words(&decision),
    };
    json!({ "rules": shown, "outcome": outcome })
}

fn notes(rule: &Explanation) -> Vec<String> {
    let mut notes = rule.notes();
    if rule.counts() && rule.origin != QuotaOrigin::Rule {
        notes.push(format!("limit from {}", rule.origin));
    }
    if matches!(rule.outcome, Explained::NotInRollout) {
        notes.push(rule.outcome.to_string());
    }
    notes
}

fn in_words(decision: &Decision) -> String {
    let reason = match decision.reason() {
        Some(Reason::Never) => ": it costs more than ever fits",
        Some(Reason::Blocked) => ": blocked",
        Some(Reason::Slots) => ": all slots are in use",
        Some(Reason::StoreFailed) => ": the store fails",
        _ => "",
    };
    match (decision.outcome(), decision.retry()) {
        (Outcome::Allow, _) => "Passes.".to_owned(),
        (Outcome::Deny, Retry::After(after)) => format!(
            "Denied{reason}; it may retry after {:.1} s.",
            after.as_secs_f64()
        ),
        (Outcome::Deny, _) => format!("Denied{reason}."),
        _ => "Not decided: the store fails, and each rule would answer as it says for that."
            .to_owned(),
    }
}
