//! `tollgate key reset`: lets a client start anew.

use clap::Args;
use serde_json::json;
use tollgate_redis::Partition;
use tollgate_rules::{AuditKind, operators::Explanation};

use crate::{
    change_args::{BecauseArgs, YesArgs},
    failure::Failure,
    key::{
        client_args::ClientArgs,
        states::{States, is_asked},
    },
    printable,
    redis_args::{KeyArgs, RedisArgs},
    report::Report,
    table::Table,
};

#[derive(Args, Debug)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    client: ClientArgs,

    #[command(flatten)]
    because: BecauseArgs,

    #[command(flatten)]
    yes: YesArgs,
}

/// What a client had used of a rule, by one partition.
pub(crate) struct Forgotten {
    pub(crate) rule: String,
    partition: String,
    pub(crate) had_state: bool,
}

pub(crate) async fn run(reset: &ResetArgs) -> Result<Report, Failure> {
    let args = &reset.client;
    let explained = args.explained().await?;
    let author = reset.because.author()?;
    let is_asked = |rule: &&Explanation| rule.counts() && is_asked(&args.only, &rule.rule);
    let asked: Vec<_> = explained.iter().filter(is_asked).collect();
    let rules: Vec<_> = asked.iter().map(|rule| &*rule.rule).collect();
    reset.yes.ask(&format!(
        "what the client has used is forgotten under {}",
        printable::line(&rules.join(", "), 300)
    ))?;
    let (redis, keys) = (&args.states.redis, &args.states.keys);
    let forgotten = forget(redis, keys, &explained, &args.only).await?;
    let mut table = Table::new(["rule", "by partition", "state"]);
    let mut json = Vec::new();
    for it in &forgotten {
        let said = match it.had_state {
            true => "forgotten",
            false => "there was none",
        };
        table.row([it.rule.clone(), it.partition.clone(), said.to_owned()]);
        json.push(json!({ "rule": it.rule, "partition": it.partition, "had_state": it.had_state }));
    }
    let had_any = forgotten.iter().any(|it| it.had_state);
    let mut text = table.text() + "\n";
    text += match had_any {
        true => "the client starts anew; units that processes hold on lease may still be spent",
        false => {
            "there was no state: is this the client's key, the right namespace and the service's secret?"
        }
    };
    for rule in asked {
        // It is done, whatever becomes of the record.
        let is_it = |it: &Forgotten| it.had_state && it.rule == rule.rule;
        let record = redis.record(AuditKind::Reset, rule, "starts anew", &author);
        if forgotten.iter().any(is_it)
            && let Err(wrong) = record.await
        {
            text += &format!("\nthe audit has no record of it: {}", wrong.message);
        }
    }
    let json = json!({ "had_state": had_any, "states": json });
    Ok(Report::new(text, json, had_any))
}

/// Forgets what a client has used of the rules that are asked for, by every partition that the service may have had.
pub(crate) async fn forget(
    redis: &RedisArgs,
    keys: &KeyArgs,
    explained: &[Explanation],
    only: &[String],
) -> Result<Vec<Forgotten>, Failure> {
    let mut forgotten = Vec::new();
    if !explained.iter().any(Explanation::counts) {
        return Ok(forgotten);
    }
    let by_rule = keys.partition.clone();
    let by_rule = by_rule.filter(|named| matches!(named, Partition::ByRule(_)));
    for partition in [Partition::One, Partition::Key].into_iter().chain(by_rule) {
        let states = States::find(redis, keys, explained, partition, only).await?;
        let is_by_rule = matches!(states.partition, Partition::ByRule(_));
        let rules = states.rules.iter().enumerate();
        for (index, rule) in rules.filter(|(_, rule)| is_asked(only, &rule.rule)) {
            let checks = states.checks.iter().enumerate();
            // By a rule, the state lies with the client of another one, which has to be named.
            let checks = checks.filter(|(other, _)| is_by_rule || *other == index);
            let checks: Vec<_> = checks
                .map(|(other, check)| check.with_cost(u64::from(other == index)))
                .collect();
            let had_state = states.limiter.reset_all(&checks).await.map_err(|wrong| {
                Failure::failed(format!(
                    "{}: {wrong}\n`tollgate doctor` says what is wrong with a Redis",
                    rule.rule
                ))
            })?;
            forgotten.push(Forgotten {
                rule: rule.rule.clone(),
                partition: states.partition.to_string(),
                had_state,
            });
        }
    }
    Ok(forgotten)
}
