//! The commands about rules.

use clap::Subcommand;

use crate::{
    failure::Failure,
    report::Report,
    rules::{check, diff, explain, history, import, push},
};

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Says all that is wrong with rules, each mistake with its line and a marker.
    Check(check::CheckArgs),
    /// Says what differs between two documents, rule by rule.
    Diff(diff::DiffArgs),
    /// Says which rules a request meets, by which quota and why, and what it costs. Takes nothing.
    Explain(explain::ExplainArgs),
    /// Makes rules of the configuration of another limiter.
    Import(import::ImportArgs),
    /// Puts rules in force in all processes that follow Redis.
    Push(push::PushArgs),
    /// Who changed the rules in Redis, when and why, and which processes have them in force.
    History(history::HistoryArgs),
}

pub(crate) async fn run(command: RulesCommand) -> Result<Report, Failure> {
    match command {
        RulesCommand::Check(args) => check::run(&args).await,
        RulesCommand::Diff(args) => diff::run(&args).await,
        RulesCommand::Explain(args) => explain::run(&args).await,
        RulesCommand::Import(args) => import::run(&args),
        RulesCommand::Push(args) => push::run(&args).await,
        RulesCommand::History(args) => history::run(&args).await,
    }
}
