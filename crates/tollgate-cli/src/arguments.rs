//! The command line.

use clap::{Parser, Subcommand};

use crate::{completions, doctor, exit, key, ledger, load, replay, rules, top};

/// Checks and explains rate limits, and looks after those in Redis.
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    max_term_width = 100,
    after_help = exit::HELP,
    after_long_help = exit::HELP
)]
pub(crate) struct Arguments {
    /// Prints JSON, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Rules in files, and those that services share through Redis.
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// What one client has left, and letting it start anew.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// What accounts have used of durable rules, line by line, and corrections.
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// What rules would have done with the requests of yesterday's log.
    Replay(replay::ReplayArgs),
    /// Which limit a server has: a load of requests, and what it denies.
    Load(load::LoadArgs),
    /// What is wrong with a Redis for this use, and what to do about it.
    Doctor(doctor::DoctorArgs),
    /// Which keys come most often: one look at a service.
    Top(top::TopArgs),
    /// Prints completions for a shell.
    Completions(completions::CompletionsArgs),
}
