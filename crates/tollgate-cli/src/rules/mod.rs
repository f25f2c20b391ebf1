//! `tollgate rules`: rules in files, and those that services share through Redis.

mod change;
mod files;
mod push;
mod show;

use clap::Subcommand;

use crate::report::{Failure, Report};

pub(crate) use self::{
    change::{ChangeArgs, ends, limit_of},
    files::{explained_json, rules_json},
    show::is_set,
};

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Says all that is wrong with rules, each mistake with its line and a marker.
    Check(files::CheckArgs),
    /// Says what differs between two documents, rule by rule.
    Diff(files::DiffArgs),
    /// Says which rules a request meets, by which quota and why, and what it costs. Takes nothing.
    Explain(files::ExplainArgs),
    /// Makes rules of the configuration of envoyproxy/ratelimit.
    Import(files::ImportArgs),
    /// Puts rules in force in all processes that follow Redis.
    Push(push::PushArgs),
    /// Says what is in force: rules, overrides and switches, by whom and until when.
    Show(show::ShowArgs),
    /// Gives one client a limit of its own in all processes, until a day.
    #[command(after_help = change::OVERRIDE_EXAMPLES, mut_arg("redis", change::unless_file),
        mut_arg("namespace", change::unless_file))]
    Override(change::OverrideArgs),
    /// Switches a rule or all of them in all processes: off, into a shadow, or to a part of their limits.
    #[command(after_help = change::SWITCH_EXAMPLES, mut_arg("redis", change::unless_file),
        mut_arg("namespace", change::unless_file))]
    Switch(change::SwitchArgs),
    /// Ends an override or a switch that an operator set.
    #[command(after_help = change::END_EXAMPLES)]
    End(change::EndArgs),
    /// Ends all switches that operators set.
    #[command(after_help = change::END_EXAMPLES)]
    Clear(change::ChangeArgs),
    /// Who changed the rules in Redis, when and why, and which processes have them in force.
    History(show::HistoryArgs),
}

pub(crate) async fn run(command: RulesCommand) -> Result<Report, Failure> {
    match command {
        RulesCommand::Check(args) => files::check(&args),
        RulesCommand::Diff(args) => files::diff(&args),
        RulesCommand::Explain(args) => files::explain(&args),
        RulesCommand::Import(args) => files::import(&args),
        RulesCommand::Push(args) => push::run(&args).await,
        RulesCommand::Show(args) => show::run(&args).await,
        RulesCommand::Override(args) => change::set_override(&args).await,
        RulesCommand::Switch(args) => change::switch(&args).await,
        RulesCommand::End(args) => change::end(&args).await,
        RulesCommand::Clear(args) => change::clear(&args).await,
        RulesCommand::History(args) => show::history(&args).await,
    }
}
