//! What an operator changes, with a reason.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::json;
use tollgate::{Quota, error::RuleErrorKind};
use tollgate_core::sync::lock;
use tollgate_rules::{Author, LiveRules, OperatorEntry};

use crate::{
    client::{self, Client},
    console::Shared,
    overview::scope,
    response::{Answer, Wrong},
};

/// The longest name and reason that is taken.
const LONGEST: usize = 500;

#[derive(Debug, Deserialize)]
pub(crate) struct Ordered {
    /// Who does it, as they say.
    #[serde(default)]
    who: String,
    because: String,
    #[serde(flatten)]
    action: Action,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
enum Action {
    /// `rule` may be `*`; the limit is `off`, `shadow` or a part, as `50%`.
    Switch {
        rule: String,
        limit: String,
        until: Option<u64>,
    },
    Override {
        rule: String,
        client: String,
        limit: String,
        until: Option<u64>,
    },
    /// Ends an override or a switch that was set while the service runs.
    End {
        id: u64,
        is_local: bool,
    },
    Reset {
        rule: String,
        client: String,
    },
    Preview {
        layer: usize,
        rule: String,
        limit: String,
    },
    EndPreview {
        layer: usize,
        rule: String,
    },
}

/// Does what is ordered, and says what it did. `operator` is whom the application knows.
pub(crate) async fn act(shared: &Shared, ordered: &Ordered, operator: Option<&str>) -> Answer {
    let who = operator.unwrap_or(&ordered.who).trim();
    let because = ordered.because.trim();
    for (text, what) in [(who, "who you are"), (because, "why")] {
        if text.is_empty() {
            return Err(Wrong::input(format!("say {what}: it goes into the audit")));
        }
        if text.len() > LONGEST {
            return Err(Wrong::input(format!("{what}, in at most {LONGEST} bytes")));
        }
    }
    let author = Author::new(who).because(because);
    let what = match &ordered.action {
        Action::Switch { rule, limit, until } => {
            let entry = OperatorEntry::switch(rule, limit).because(because);
            set(shared, ending(entry, *until)?, &author).await?;
            format!("switched {rule} to {limit}")
        }
        Action::Override {
            rule,
            client,
            limit,
            until,
        } => {
            let client = Client::parse(client)?;
            let [first, others @ ..] = client.texts()? else {
                return Err(Wrong::input("which client?"));
            };
            let of_first = OperatorEntry::limit(rule, first, limit).because(because);
            let entry = others.iter().fold(of_first, OperatorEntry::and_key);
            set(shared, ending(entry, *until)?, &author).await?;
            // Without the key.
            match limit.trim() {
                "none" => format!("blocked a client of {rule}"),
                limit => format!("gave a client of {rule} the limit {limit}"),
            }
        }
        Action::End { id, is_local } => {
            end(shared, *id, *is_local, &author).await?;
            format!("ended number {id}")
        }
        Action::Reset { rule, client } => {
            let had_state = client::reset(shared, rule, client).await?;
            let what = match had_state {
                true => format!("reset a client of {rule}"),
                false => format!("reset a client of {rule}, which had used nothing"),
            };
            let what = audit(who, because, what);
            #[cfg(feature = "redis")]
            if let Some((fleet, _)) = &shared.parts.fleet {
                // It is done, whatever becomes of the record: the event above says it too.
                let recorded = fleet
                    .record(
                        tollgate_rules::AuditKind::Reset,
                        rule,
                        None,
                        "starts anew",
                        &author,
                    )
                    .await;
                recorded.map_err(|wrong| {
                    Wrong::input(format!(
                        "{what}, and the audit in Redis did not take it: {wrong}"
                    ))
                })?;
            }
            what
        }
        Action::Preview { layer, rule, limit } => {
            let of_rule = layer_of(shared, *layer)?;
            let limiter = of_rule.limiter();
            let mut given = limiter.rules().given().iter();
            // As that of an override, it may leave the algorithm to the rule.
            let own = given.find(|it| it.name() == *rule);
            let quota = own.map_or_else(|| limit.parse(), |own| own.quota().parse_beside(limit));
            let quota: Quota =
                quota.map_err(|wrong| Wrong::input(format!("the limit {limit:?}: {wrong}")))?;
            let handle = of_rule.handle();
            handle.preview(rule, quota).map_err(|wrong| match wrong.kind() {
                RuleErrorKind::Plan => Wrong::input(format!(
                    "clients with an override or a plan keep it in a preview, and it does not go with {quota}: {wrong}"
                )),
                _ => Wrong::input(wrong),
            })?;
            let preview = (quota.to_string(), shared.clock.now());
            lock(&shared.previews).insert((*layer, rule.clone()), preview);
            audit(
                who,
                because,
                format!("began a preview of {rule} at {quota}"),
            )
        }
        Action::EndPreview { layer, rule } => {
            let of_rule = layer_of(shared, *layer)?;
            lock(&shared.previews).remove(&(*layer, rule.clone()));
            // The application may have begun it, or ended it.
            if !of_rule.handle().end_preview(rule).map_err(Wrong::input)? {
                let message = format!("{rule} has no preview: it has ended");
                return Err(Wrong::input(message));
            }
            audit(who, because, format!("ended the preview of {rule}"))
        }
    };
    Ok(json!({ "done": what, "scope": scope(shared) }))
}

/// Changes of rules are in the audit already; these are not.
fn audit(actor: &str, reason: &str, changes: String) -> String {
    tracing::info!(target: "tollgate::audit", what = "accepted", actor, reason, "{changes}");
    changes
}

async fn set(shared: &Shared, entry: OperatorEntry, author: &Author) -> Result<(), Wrong> {
    #[cfg(feature = "redis")]
    if let Some((fleet, bindings)) = &shared.parts.fleet {
        let set = fleet.set(&[entry], bindings, author).await;
        return set.map(drop).map_err(Wrong::input);
    }
    let set = rules(shared)?.handle(author.clone()).set(entry);
    set.map(drop).map_err(Wrong::input)
}

async fn end(shared: &Shared, id: u64, is_local: bool, author: &Author) -> Result<(), Wrong> {
    #[cfg(feature = "redis")]
    if let Some((fleet, bindings)) = shared.parts.fleet.as_ref().filter(|_| !is_local) {
        let ended = fleet.end(&[id], bindings, author).await;
        return ended.map(drop).map_err(Wrong::input);
    }
    if !is_local {
        return Err(Wrong::input(
            "it is in force in all processes, and this console changes its own alone",
        ));
    }
    let ended = rules(shared)?.handle(author.clone()).end(&[id]);
    ended.map(drop).map_err(Wrong::input)
}

fn rules(shared: &Shared) -> Result<&LiveRules, Wrong> {
    let rules = shared.parts.rules.as_ref();
    rules.ok_or_else(|| {
        Wrong::input("the rules of this service are in its code, and are changed there")
    })
}

fn layer_of(shared: &Shared, layer: usize) -> Result<&tollgate::RateLimitLayer, Wrong> {
    let layer = shared.parts.layers.get(layer);
    let (_, layer) = layer.ok_or_else(|| Wrong::input("the console was given no such layer"))?;
    Ok(layer)
}

/// An entry that ends then, in milliseconds since the Unix epoch.
fn ending(entry: OperatorEntry, until: Option<u64>) -> Result<OperatorEntry, Wrong> {
    let Some(until) = until else {
        return Ok(entry);
    };
    let end = SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(until))
        .ok_or_else(|| Wrong::input("the end is too far away"))?;
    Ok(entry.until(end))
}
