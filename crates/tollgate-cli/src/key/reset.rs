//! `tollgate key reset`: lets a client start anew.

use clap::Args;
use serde_json::json;
use tollgate_redis::Partition;
use tollgate_rules::{Author, operators::Explanation};

use crate::{
    change_args::{BecauseArgs, YesArgs},
    exit::Exit,
    failure::Failure,
    key::{client_args::ClientArgs, states::States, status::partitions},
    printable,
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

pub(crate) async fn run(reset: &ResetArgs) -> Result<Report, Failure> {
    let args = &reset.client;
    let explained = args.explained().await?;
    let author = reset.because.author()?;
    let asked = explained.iter().filter(|rule| rule.counts());
    let asked: Vec<_> = asked
        .map(|rule| &*rule.rule)
        .filter(|rule| args.is_asked(rule))
        .collect();
    let rules = printable::line(&asked.join(", "), 300);
    reset.yes.ask(&format!(
        "what the client has used is forgotten under {rules}"
    ))?;
    let mut table = Table::new(["rule", "by partition", "state"]);
    let (mut json, mut had_any, mut forgotten) = (Vec::new(), false, Vec::new());
    for partition in all_partitions(args) {
        if !explained.iter().any(Explanation::counts) {
            break;
        }
        let states = States::find(args, &explained, partition.clone()).await?;
        let rules = states.rules.iter().enumerate();
        for (index, rule) in rules.filter(|(_, rule)| args.is_asked(&rule.rule)) {
            let had_state = match &partition {
                // The state lies with the client of another rule, which has to be named.
                Partition::ByRule(_) => {
                    let checks = states.checks.iter().enumerate();
                    let checks: Vec<_> = checks
                        .map(|(other, check)| check.with_cost(u64::from(other == index)))
                        .collect();
                    states.limiter.reset_all(&checks).await
                }
                _ => {
                    states
                        .limiter
                        .reset_all(&[states.checks[index].with_cost(1)])
                        .await
                }
            };
            let had_state = had_state.map_err(|wrong| {
                Failure::failed(format!(
                    "{}: {wrong}\n`tollgate doctor` says what is wrong with a Redis",
                    rule.rule
                ))
            })?;
            had_any |= had_state;
            if had_state
                && !forgotten
                    .iter()
                    .any(|it: &&Explanation| it.rule == rule.rule)
            {
                forgotten.push(*rule);
            }
            let said = match had_state {
                true => "forgotten",
                false => "there was none",
            };
            table.row([rule.rule.to_owned(), states.name(), said.to_owned()]);
            json.push(json!({
                "rule": rule.rule,
                "partition": states.name(),
                "had_state": had_state,
            }));
        }
    }
    let said = match had_any {
        true => "the client starts anew; units that processes hold on lease may still be spent",
        false => {
            "there was no state: is this the client's key, the right namespace and the service's secret?"
        }
    };
    let mut text = table.text() + "\n" + said;
    for rule in forgotten {
        // It is done, whatever becomes of the record.
        if let Err(wrong) = record(args, rule, &author).await {
            text.push_str(&format!(
                "\nthe audit has no record of it: {}",
                wrong.message
            ));
        }
    }
    let json = json!({ "had_state": had_any, "states": json });
    Ok(Report::new(text, json, Exit::of(had_any)))
}

/// Writes it into the audit. Keys without a secret have none.
async fn record(args: &ClientArgs, rule: &Explanation, author: &Author) -> Result<(), Failure> {
    let Some(secret) = args.redis.secret.find()? else {
        return Ok(());
    };
    let redis = args.redis.rules(&secret)?;
    let record = redis.record_reset(&rule.rule, rule.key_hash, author);
    Ok(args.redis.in_time(record).await??)
}

/// Every partition that the service may have had.
fn all_partitions(args: &ClientArgs) -> Vec<Partition> {
    let mut all = vec![Partition::One, Partition::Key];
    all.extend(
        partitions(args)
            .into_iter()
            .filter(|named| matches!(named, Partition::ByRule(_))),
    );
    all
}
