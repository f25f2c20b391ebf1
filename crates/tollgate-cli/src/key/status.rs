//! `tollgate key status`: what a client has left; and `tollgate key check`: one request, decided from a shell.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tollgate::{Check, decision::Outcome};
use tollgate_redis::Partition;
use tollgate_rules::operators::{Explained, Explanation};

use crate::{
    key::{
        credits::{balance_json, shown},
        states::{ClientArgs, States, uncounted, undecided},
    },
    ledger::DatabaseArgs,
    report::{self, Failure, Report, Table},
    rules::{explained_json, rules_json},
};

/// One rule's state by one partition.
struct Seen<'a> {
    rule: &'a Explanation,
    partition: String,
    cells: [String; 7],
    json: Value,
    is_used: bool,
    is_denied: bool,
}

pub(crate) async fn status(args: &ClientArgs) -> Result<Report, Failure> {
    let explained = args.explained().await?;
    if let Some(lines) = uncounted(&explained) {
        let json = json!({ "denied": false, "rules": rules_json(&explained) });
        return Ok(Report::new(lines, json, true));
    }
    // Where states may lie.
    let partitions = match &args.states.keys.partition {
        Some(partition) => vec![partition.clone()],
        None => vec![Partition::One, Partition::Key],
    };
    let mut all: Vec<Seen<'_>> = Vec::new();
    for partition in partitions {
        if explained.iter().any(Explanation::counts) {
            all.extend(look(args, &explained, partition).await?);
        }
    }
    let mut table = Table::new("rule | key | limit | from | #left | all back in | a request now");
    let (mut json, mut denying, mut notes) = (Vec::new(), Vec::new(), String::new());
    for rule in &explained {
        let mut note = |text: &str| notes.push_str(&format!("\n{}: {text}", rule.rule));
        let seen: Vec<&Seen<'_>> = all.iter().filter(|it| it.rule.rule == rule.rule).collect();
        if seen.is_empty() {
            continue;
        }
        let used: Vec<&Seen<'_>> = seen.iter().copied().filter(|it| it.is_used).collect();
        // Where nothing is used anywhere, one line says so.
        for seen in if used.is_empty() {
            seen.get(..1).unwrap_or_default()
        } else {
            &used
        } {
            table.row(seen.cells.clone());
            json.push(seen.json.clone());
        }
        if used.len() > 1 {
            let places: Vec<&str> = used.iter().map(|seen| &*seen.partition).collect();
            let places = places.join(" and ");
            note(&format!(
                "there are states by the partitions {places}; services with two partitions give a client two budgets"
            ));
        }
        if rule.is_shared() {
            note("the request has no key; this is the bucket that all such requests share");
        }
        if rule.outcome == Explained::Shadows {
            note("a shadow, which denies nothing");
        }
        if rule.outcome == Explained::Enforces && seen.iter().any(|seen| seen.is_denied) {
            denying.push(&*rule.rule);
        }
    }
    let mut is_denied = !denying.is_empty();
    let rejects = |rule: &&Explanation| matches!(rule.outcome, Explained::Rejects(_));
    for rule in explained.iter().filter(rejects) {
        is_denied = true;
        notes += &format!("\n{}: {}", rule.rule, rule.outcome);
        json.push(explained_json(rule));
    }
    let (lines, rules) = undecided(&explained);
    notes += &lines;
    json.extend(rules);
    if !all.is_empty() && !all.iter().any(|seen| seen.is_used || seen.is_denied) {
        notes += "\nthere is no state: is this the client's key, and are the path, the namespace and the secret the service's? \
                  tollgate doctor compares secrets";
    }
    if !denying.is_empty() {
        notes += &format!("\ndenied by {}", denying.join(" and "));
    }
    let json = json!({ "denied": is_denied, "rules": json });
    Ok(Report::new(table.text() + &notes, json, !is_denied))
}

async fn look<'a>(
    args: &ClientArgs,
    explained: &'a [Explanation],
    partition: Partition,
) -> Result<Vec<Seen<'a>>, Failure> {
    let (redis, keys) = (&args.states.redis, &args.states.keys);
    let states = States::find(redis, keys, explained, partition, &args.only, false, None).await?;
    // Apart: a limit of none would end the decision about all.
    let is_none = |check: &&Check| {
        let rule = states.rules.get(usize::from(check.rule()));
        rule.is_some_and(|rule| rule.quota.is_none())
    };
    let (none, counted): (Vec<Check>, Vec<Check>) = states.checks.iter().partition(is_none);
    let look: Vec<Check> = counted.iter().map(|check| check.with_cost(0)).collect();
    let peek = |checks: &[Check]| states.limiter.peek(checks);
    let (left, now, blocked) = (peek(&look).await, peek(&counted).await, peek(&none).await);
    let of_blocked = states.said(&blocked, &blocked);
    let mut all = Vec::new();
    for said in states.said(&now, &left).chain(of_blocked) {
        let (rule, left) = (said.rule, said.left);
        let outcomes = [left.outcome(), said.verdict.outcome()];
        if outcomes.contains(&Outcome::Failed) {
            return Err(Failure::failed(format!(
                "Redis has not answered about {:?}; `tollgate doctor` says why",
                rule.rule
            )));
        }
        let back = match said.has_state() {
            true => report::from(said.at, left.reset_after()),
            false => "nothing used".to_owned(),
        };
        let credits = match &rule.key {
            Some(key) if rule.limiter_rule.has_credits() => {
                let balance = states
                    .limiter
                    .balance(rule.limiter_rule.name(), key)
                    .map_err(Failure::failed)?
                    .await;
                Some(balance.map_err(Failure::failed)?).filter(|it| it.until.is_some())
            }
            _ => None,
        };
        let mut json = said.json();
        json["credits"] = json!(credits.as_ref().map(balance_json));
        json["partition"] = json!(states.partition.to_string());
        let mut units = match left.debt() {
            0 => left.remaining().to_string(),
            owed => format!("0, owes {owed}"),
        };
        if let Some(credits) = &credits {
            units += &format!(", {}", shown(credits));
        }
        all.push(Seen {
            rule,
            partition: states.partition.to_string(),
            cells: [
                rule.rule.to_owned(),
                said.key.to_string(),
                rule.quota.to_string(),
                rule.origin.to_string(),
                units,
                back,
                said.outcome(),
            ],
            json,
            is_used: said.has_state() || credits.is_some(),
            is_denied: said.verdict.outcome() == Outcome::Deny,
        });
    }
    Ok(all)
}

/// How long slots may take to go back.
const RETURN_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    client: ClientArgs,

    #[command(flatten)]
    ledger: DatabaseArgs,
}

pub(crate) async fn check(args: &CheckArgs) -> Result<Report, Failure> {
    let (args, ledger) = (&args.client, &args.ledger);
    let explained = args.explained().await?;
    if let Some(lines) = uncounted(&explained) {
        let json = json!({ "allowed": true, "reason": null, "rules": rules_json(&explained) });
        return Ok(Report::new(lines + "\nallowed", json, true));
    }
    let rejects = |rule: &&Explanation| matches!(rule.outcome, Explained::Rejects(_));
    if let Some(rule) = explained.iter().find(rejects) {
        let text = format!("denied by {}: {}", rule.rule, rule.outcome);
        let json = json!({ "allowed": false, "reason": "no_key", "rules": [explained_json(rule)] });
        return Ok(Report::new(text, json, false));
    }
    let (redis, keys) = (&args.states.redis, &args.states.keys);
    let partition = keys.one_partition(redis)?;
    let ledger = ledger.of_rules(&explained).await?;
    let of_states = ledger.as_ref();
    let states = States::find(
        redis, keys, &explained, partition, &args.only, true, of_states,
    )
    .await?;
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
    let mut table = Table::new("rule | key | limit | from | #units | #left | decision");
    let (mut rules, mut denying) = (Vec::new(), Vec::new());
    for said in states.said(&decision, &decision) {
        let (rule, verdict) = (said.rule, said.verdict);
        let is_shadow = rule.outcome == Explained::Shadows;
        if verdict.outcome() == Outcome::Deny && !is_shadow {
            denying.push(&*rule.rule);
        }
        let decided = match verdict.outcome() {
            Outcome::NotDecided => "not asked: another rule has denied".to_owned(),
            _ if is_shadow => format!("shadow: {}", said.outcome()),
            _ => said.outcome(),
        };
        table.row([
            rule.rule.to_owned(),
            said.key.to_string(),
            rule.quota.to_string(),
            rule.origin.to_string(),
            rule.units.to_string(),
            verdict.remaining().to_string(),
            decided,
        ]);
        rules.push(said.json());
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
        said += &format!(", retry after {}", report::from(decision.at(), after));
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
    if let Some(ledger) = ledger {
        ledger.close().await?;
    }
    let text = table.text() + &undecided + "\n" + &said;
    Ok(Report::new(text, json, is_allowed))
}
