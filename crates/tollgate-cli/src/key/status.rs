//! `tollgate key status`: what a client has left.

use serde_json::json;
use tollgate::{Check, Decision, decision::Outcome};
use tollgate_redis::Partition;
use tollgate_rules::operators::{Explained, Explanation};

use crate::{
    exit::Exit,
    failure::Failure,
    key::{
        client_args::{ClientArgs, undecided},
        credits::{balance_json, shown},
        states::{Said, has_state, outcome, verdict_json},
    },
    report::Report,
    rules::explained_json,
    table::Table,
    time_text,
};

/// One rule's state by one partition.
struct Seen {
    partition: String,
    cells: [String; 7],
    json: serde_json::Value,
    /// Of a calendar, which one it is, and what was used of it.
    window: Option<String>,
    is_used: bool,
    is_denied: bool,
}

pub(crate) async fn run(args: &ClientArgs) -> Result<Report, Failure> {
    let explained = args.explained().await?;
    let mut of_rules: Vec<(&Explanation, Vec<Seen>)> = Vec::new();
    for partition in partitions(args) {
        if explained.iter().any(Explanation::counts) {
            look(args, &explained, partition, &mut of_rules).await?;
        }
    }
    let mut table = Table::new([
        "rule",
        "key",
        "limit",
        "from",
        "#left",
        "all back in",
        "a request now",
    ]);
    let (mut json, mut is_denied, mut notes) = (Vec::new(), false, String::new());
    for (rule, seen) in &of_rules {
        let mut note = |text: &str| notes.push_str(&format!("\n{}: {text}", rule.rule));
        let used = seen.iter().any(|seen| seen.is_used);
        // Where nothing is used anywhere, one line says so.
        let shown = seen.iter().filter(|seen| seen.is_used || !used);
        for seen in shown.take(if used { usize::MAX } else { 1 }) {
            table.row(seen.cells.clone());
            seen.window.iter().for_each(|window| note(window));
            let is_enforced = rule.outcome == Explained::Enforces;
            is_denied |= seen.is_denied && is_enforced;
            json.push(seen.json.clone());
        }
        let places = seen.iter().filter(|seen| seen.is_used);
        let places: Vec<&str> = places.map(|seen| &*seen.partition).collect();
        if places.len() > 1 {
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
    }
    for rule in explained
        .iter()
        .filter(|rule| matches!(rule.outcome, Explained::Rejects(_)))
    {
        is_denied = true;
        notes.push_str(&format!("\n{}: {}", rule.rule, rule.outcome));
        json.push(explained_json(rule));
    }
    let (lines, rules) = undecided(&explained);
    notes.push_str(&lines);
    json.extend(rules);
    let mut seen = of_rules.iter().flat_map(|(_, seen)| seen).peekable();
    if seen.peek().is_some() && !seen.any(|seen| seen.is_used || seen.is_denied) {
        notes.push_str(
            "\nthere is no state: is this the client's key, and are the path, the namespace and the secret the service's? \
             tollgate doctor compares secrets",
        );
    }
    if let Some(why) = denied_by(&of_rules) {
        notes.push_str(&format!("\n{why}"));
    }
    let text = table.text() + &notes;
    let json = json!({ "denied": is_denied, "rules": json });
    Ok(Report::new(text, json, Exit::of(!is_denied)))
}

/// Where states may lie.
pub(super) fn partitions(args: &ClientArgs) -> Vec<Partition> {
    match &args.states.keys.partition {
        Some(partition) => vec![partition.clone()],
        None => vec![Partition::One, Partition::Key],
    }
}

async fn look<'a>(
    args: &ClientArgs,
    explained: &'a [Explanation],
    partition: Partition,
    of_rules: &mut Vec<(&'a Explanation, Vec<Seen>)>,
) -> Result<(), Failure> {
    let states = args.states(explained, partition).await?;
    // Apart: a limit of none would end the decision about all.
    let is_none = |check: &&Check| {
        let rule = states.rules.get(usize::from(check.rule()));
        rule.is_some_and(|rule| rule.quota.is_none())
    };
    let (none, counted): (Vec<Check>, Vec<Check>) = states.checks.iter().partition(is_none);
    let look: Vec<Check> = counted.iter().map(|check| check.with_cost(0)).collect();
    let ask = async |checks: &[Check]| match checks.is_empty() {
        true => Decision::unlimited(0),
        false => states.limiter.peek(checks).await,
    };
    let (left, now, blocked) = (ask(&look).await, ask(&counted).await, ask(&none).await);
    let of_blocked = states.verdicts(&blocked).zip(states.verdicts(&blocked));
    let of_counted = states.verdicts(&left).zip(states.verdicts(&now));
    for (left, said) in of_counted.chain(of_blocked) {
        let left = left.verdict;
        let Said {
            rule,
            key,
            verdict: now,
            at,
        } = said;
        if left.outcome() == Outcome::Failed || now.outcome() == Outcome::Failed {
            return Err(Failure::failed(format!(
                "Redis has not answered about {:?}; `tollgate doctor` says why",
                rule.rule
            )));
        }
        let back = match has_state(left) {
            true => time_text::from(at, left.reset_after()),
            false => "nothing used".to_owned(),
        };
        let credits = match &rule.key {
            Some(key) if rule.limiter_rule.has_credits() => {
                let balance = states.limiter.balance(rule.limiter_rule.name(), key);
                let balance = balance.map_err(Failure::failed)?.await;
                Some(balance.map_err(Failure::failed)?).filter(|it| it.until.is_some())
            }
            _ => None,
        };
        let mut json = verdict_json(&said, left);
        json["credits"] = json!(credits.as_ref().map(balance_json));
        json["partition"] = json!(states.name());
        let window = rule.quota.calendar_of().map(|calendar| {
            let [begin, end] = calendar.window(at);
            let used = rule.quota.limit().saturating_sub(left.remaining()) + left.debt();
            json["window"] = json!({ "begin": begin, "end": end, "used": used });
            format!("{used} units are used from {begin} to {end}")
        });
        let seen = Seen {
            window,
            partition: states.name(),
            cells: [
                rule.rule.to_owned(),
                key.to_string(),
                rule.quota.to_string(),
                rule.origin.to_string(),
                match (left.debt(), &credits) {
                    (0, None) => left.remaining().to_string(),
                    (0, Some(credits)) => format!("{}, {}", left.remaining(), shown(credits)),
                    (owed, None) => format!("0, owes {owed}"),
                    (owed, Some(credits)) => format!("0, owes {owed}, {}", shown(credits)),
                },
                back,
                outcome(&said),
            ],
            json,
            is_used: has_state(left) || credits.is_some(),
            is_denied: now.outcome() == Outcome::Deny,
        };
        match of_rules
            .iter_mut()
            .find(|(known, _)| known.rule == rule.rule)
        {
            Some((_, all)) => all.push(seen),
            None => of_rules.push((rule, vec![seen])),
        }
    }
    Ok(())
}

/// Which rule denies.
fn denied_by(of_rules: &[(&Explanation, Vec<Seen>)]) -> Option<String> {
    let denying = of_rules.iter().filter(|(rule, seen)| {
        rule.outcome == Explained::Enforces && seen.iter().any(|seen| seen.is_denied)
    });
    let names: Vec<&str> = denying.map(|(rule, _)| &*rule.rule).collect();
    (!names.is_empty()).then(|| format!("denied by {}", names.join(" and ")))
}
