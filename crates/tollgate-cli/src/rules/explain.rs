//! `tollgate rules explain`: which rules a request meets, and why.

use clap::Args;
use serde_json::{Value, json};
use tollgate_rules::operators::{Explained, Explanation, QuotaOrigin};

use crate::{
    args::{RequestArgs, SecretArgs},
    failure::Failure,
    report::{self, Report, Table},
    rule_args::RuleArgs,
};

const EXAMPLES: &str = "\
Examples:
  tollgate rules explain --rules limits.toml --path /search -H 'x-api-key: acme-key-1'
  tollgate rules explain --rules limits.toml --method POST --path /items/7 --client-ip 192.0.2.7
  tollgate rules explain --rules limits.toml --path /search --bind-key tenant=acme --bind-plan plan=gold
  tollgate rules explain --rules limits.toml --at edge --domain sms --descriptor kind=alert --descriptor to=+441234

Nothing is decided and nothing is taken; `tollgate key status` says what is left. With the secret of the service,
the client's hash is shown: denials in the audit show its beginning, and an override may name the client by it.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    rules: RuleArgs,

    #[command(flatten)]
    secret: SecretArgs,
}

pub(crate) async fn run(args: &ExplainArgs) -> Result<Report, Failure> {
    let document = args.rules.document(&args.secret).await?;
    let explained = document.explain(&args.request.head()?);
    let mut table = Table::new(["rule", "counts", "limit", "from", "#units", "by"]);
    for rule in &explained {
        let counts = match &rule.outcome {
            Explained::Enforces => "yes".to_owned(),
            Explained::Shadows => "as a shadow".to_owned(),
            other => format!("no: {other}"),
        };
        let (from, units) = match rule.counts() {
            true => (rule.origin.to_string(), rule.units.to_string()),
            false => (String::new(), String::new()),
        };
        table.row([
            rule.rule.to_owned(),
            counts,
            rule.quota.to_string(),
            from,
            units,
            rule.by.join(", "),
        ]);
    }
    let text = table.text() + &notes(&explained);
    let rules: Vec<_> = explained.iter().map(explained_json).collect();
    Ok(Report::new(text, json!({ "rules": rules }), true))
}

/// What does not fit into a table.
fn notes(explained: &[Explanation]) -> String {
    let mut notes = String::new();
    for rule in explained {
        let mut note = |text: String| notes += &format!("\n{}: {text}", rule.rule);
        if rule.counts() {
            note_settings(rule, &mut note);
        }
        for switch in &rule.switches {
            note(format!("switched, {}", report::line(switch, 300)));
        }
    }
    match explained.iter().any(Explanation::counts) {
        true => notes,
        false => notes + "\nno rule counts this request",
    }
}

/// Whom it counts, and what of its settings decides how.
fn note_settings(rule: &Explanation, note: &mut impl FnMut(String)) {
    let of_limiter = &rule.limiter_rule;
    if rule.is_shared() {
        note(
            "the request has no key, and counts against the bucket that all such requests share"
                .into(),
        );
    } else if let Some(hash) = rule.key_hash {
        note(format!("the client is {hash:032x}"));
    }
    if let Some(at_most) = of_limiter.at_most_wait().map(report::duration) {
        note(format!(
            "a request that does not fit waits for up to {at_most}"
        ));
    }
    if of_limiter.debt_of() > 0 {
        let owed = of_limiter.debt_of();
        note(format!(
            "a client may owe up to {owed} units, and waits until they are paid back"
        ));
    }
    if let Some((period, repeats)) = of_limiter.idempotent_for() {
        let period = report::duration(period);
        note(format!(
            "with an id, a request may be repeated {repeats} times within {period}"
        ));
    }
    if of_limiter.has_credits() {
        note("takes credits, if the limit has too little left".to_owned());
    }
    if let Some(condition) = &rule.counts_if {
        let condition = report::line(condition, 300);
        note(format!(
            "gives the units back unless the response is {condition}"
        ));
    }
}

/// For programs. The key itself is not part of it.
pub(crate) fn explained_json(explained: &Explanation) -> Value {
    let (until, reason) = match &explained.origin {
        QuotaOrigin::Override { until, reason, .. } => (until.map(report::time), reason.clone()),
        _ => (None, None),
    };
    json!({
        "rule": explained.rule,
        "by": explained.by,
        "counts": explained.counts(),
        "outcome": explained.outcome.to_string(),
        "limit": explained.quota.to_string(),
        "limit_from": explained.origin.to_string(),
        "until": until,
        "reason": reason,
        "units": explained.units,
        "waits_seconds": explained.limiter_rule.at_most_wait().map(|at_most| at_most.as_secs_f64()),
        "debt": explained.limiter_rule.debt_of(),
        "takes_credits": explained.limiter_rule.has_credits(),
        "count_if": explained.counts_if,
        "switches": explained.switches,
        "client": explained.key_hash.map(|hash| format!("{hash:032x}")),
        "shares_the_bucket_without_key": explained.is_shared(),
    })
}
