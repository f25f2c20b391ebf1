//! `tollgate key check`: one request, decided from a shell.

use std::time::Duration;

use serde_json::json;
use tollgate::decision::Outcome;
use tollgate_rules::operators::{Explained, Explanation};

use crate::{
    failure::Failure,
    key::{
        client_args::{ClientArgs, undecided},
        states::{Said, States, outcome, verdict_json},
    },
    report::Report,
    rules::explained_json,
    table::Table,
    time_text,
};

/// How long slots may take to go back.
const RETURN_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &ClientArgs) -> Result<Report, Failure> {
    let explained = args.explained().await?;
    let rejects = |rule: &&Explanation| matches!(rule.outcome, Explained::Rejects(_));
    if let Some(rule) = explained.iter().find(rejects) {
        let text = format!("denied by {}: {}", rule.rule, rule.outcome);
        let json = json!({ "allowed": false, "reason": "no_key", "rules": [explained_json(rule)] });
        return Ok(Report::new(text, json, false));
    }
    let (redis, keys) = (&args.states.redis, &args.states.keys);
    let partition = keys.one_partition(redis)?;
    let states = States::find(redis, keys, &explained, partition, &args.only).await?;
    // Where a request of the service waits, what comes after this command has to start as late.
    let decision = match states.limiter.at_most_wait(&states.checks) {
        None => states.limiter.acquire(&states.checks).await,
        Some(patience) => {
            let waits = states.limiter.acquire_within(&states.checks, patience);
            waits.await.map_err(Failure::failed)?
        }
    };
    if decision.is_degraded() {
        return Err(Failure::failed(
            "Redis has not decided; `tollgate doctor` says why. A service would answer by the rules' on_store_error",
        ));
    }
    let mut table = Table::new([
        "rule", "key", "limit", "from", "#units", "#left", "decision",
    ]);
    let (mut rules, mut denying) = (Vec::new(), Vec::new());
    for said in states.verdicts(&decision) {
        let Said {
            rule, key, verdict, ..
        } = said;
        let is_shadow = rule.outcome == Explained::Shadows;
        if verdict.outcome() == Outcome::Deny && !is_shadow {
            denying.push(&*rule.rule);
        }
        let decided = match verdict.outcome() {
            Outcome::NotDecided => "not asked: another rule has denied".to_owned(),
            _ if is_shadow => format!("shadow: {}", outcome(&said)),
            _ => outcome(&said),
        };
        table.row([
            rule.rule.to_owned(),
            key.to_string(),
            rule.quota.to_string(),
            rule.origin.to_string(),
            rule.units.to_string(),
            verdict.remaining().to_string(),
            decided,
        ]);
        rules.push(verdict_json(&said, verdict));
    }
    let (undecided, of_undecided) = undecided(&explained);
    rules.extend(of_undecided);
    let is_allowed = decision.is_allowed();
    let retry = decision.retry_after();
    let mut said = match is_allowed {
        true => "allowed".to_owned(),
        false => format!("denied by {}", denying.join(" and ")),
    };
    if let Some(after) = retry.filter(|_| !is_allowed) {
        said += &format!(", retry after {}", time_text::from(decision.at(), after));
    }
    let json = json!({
        "allowed": is_allowed,
        "reason": decision.reason().map(|reason| reason.as_str()),
        "retry_after_seconds": retry.map(|after| after.as_secs_f64()),
        "rules": rules,
    });
    // The request has ended, and gives its slots back.
    drop(decision);
    states.store.flush(RETURN_PATIENCE).await;
    let text = table.text() + &undecided + "\n" + &said;
    Ok(Report::new(text, json, is_allowed))
}
