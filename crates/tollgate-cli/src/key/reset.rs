//! `tollgate key reset`: lets a client start anew.

use serde_json::json;
use tollgate_redis::Partition;
use tollgate_rules::Explanation;

use crate::{
    exit::Exit,
    failure::Failure,
    key::{client_args::ClientArgs, states::States, status::partitions},
    report::Report,
    table::Table,
};

pub(crate) async fn run(args: &ClientArgs) -> Result<Report, Failure> {
    let explained = args.explained().await?;
    let mut table = Table::new(["rule", "by partition", "state"]);
    let (mut json, mut had_any) = (Vec::new(), false);
    for partition in all_partitions(args) {
        if !explained.iter().any(Explanation::counts) {
            break;
        }
        let states = States::find(args, &explained, partition.clone()).await?;
        let rules = states.rules.iter().enumerate();
        for (index, rule) in rules.filter(|(_, rule)| args.is_asked(rule.rule())) {
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
                    rule.rule()
                ))
            })?;
            had_any |= had_state;
            let said = match had_state {
                true => "forgotten",
                false => "there was none",
            };
            table.row([rule.rule().to_owned(), states.name(), said.to_owned()]);
            json.push(json!({
                "rule": rule.rule(),
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
    let json = json!({ "had_state": had_any, "states": json });
    Ok(Report::new(
        table.text() + "\n" + said,
        json,
        Exit::of(had_any),
    ))
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
