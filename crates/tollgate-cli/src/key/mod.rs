//! `tollgate key`: what one client has left, and letting it start anew.

mod block;
mod credits;
mod hash;
mod states;
mod status;

use clap::Subcommand;

use crate::{
    key::states::ClientArgs,
    report::{Failure, Report},
};

const CHECK_EXAMPLES: &str = "\
Examples:
  tollgate key check --path /search -H 'x-api-key: acme-key-1'
  tollgate key check acme-key-1 --rule search-per-key && ./import

It decides one request as the service does, and takes its units. Those of a durable rule go to its ledger: set DATABASE_URL too. Exit
code 1: denied.";

const STATUS_EXAMPLES: &str = "\
Examples:
  tollgate key status acme-key-1                                   # under every rule that it may be a key of
  tollgate key status 192.0.2.7 --rule log-in-per-address
  tollgate key status --path /search -H 'x-api-key: acme-key-1'    # under the rules that this request meets

It takes nothing. Units that processes hold on lease count as used. Exit code 1: a request would be denied now.";

const RESET_EXAMPLES: &str = "\
Examples:
  tollgate key reset acme-key-1 --rule search-per-key --because 'ticket 4711'
  tollgate key reset --path /search -H 'x-api-key: acme-key-1' --because 'ticket 4711' --yes

It asks first, and writes the reason into the audit. The states of every partition are looked for. Exit code 1: there was no state, which mostly means another key than
the client's.";

const BLOCK_EXAMPLES: &str = "\
Examples:
  tollgate key block search-per-key acme-key-1 --until 2h --because 'ticket 4711'
  tollgate key block search-per-key acme-key-1 --everywhere --because 'the key was leaked'
  tollgate key unblock search-per-key acme-key-1 --everywhere --because 'ticket 4711 is closed'

It is an override with the limit none, beside the pushed rules: `tollgate rules show` lists it. For many clients take a list.";

const CREDITS_EXAMPLES: &str = "\
Examples:
  tollgate key grant pages-per-customer acme --units 100000 --until 365d --id invoice-4711 --because 'top-up'
  tollgate key revoke pages-per-customer acme --id invoice-4711 --because 'the invoice was cancelled'

A request takes its whole cost from the limit, or else from the balance; a later end prolongs what is there. `tollgate key status` shows
it. Exit code 1: this id has granted before; nothing was left to revoke.";

const HASH_EXAMPLES: &str = "\
Examples:
  tollgate key hash revoked acme-key-1 >> revoked.txt
  tollgate key hash revoked < keys.txt > revoked.txt

Without a key, the standard input is a list: ends and networks stay as they are. Arguments are seen by every user of the machine.";

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Decides one request, and takes its units.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(status::CheckArgs),
    /// Says what a client has left under each rule, and when it may retry. Takes nothing.
    #[command(after_help = STATUS_EXAMPLES)]
    Status(ClientArgs),
    /// Forgets what a client has used, and says whether there was anything to forget.
    #[command(after_help = RESET_EXAMPLES)]
    Reset(block::ResetArgs),
    /// Lets nothing of one client pass, in all processes, until a time.
    #[command(after_help = BLOCK_EXAMPLES)]
    Block(block::BlockArgs),
    /// Ends such a block, and the growing block of the rule with it.
    #[command(after_help = BLOCK_EXAMPLES)]
    Unblock(block::UnblockArgs),
    /// Adds units to the balance of one client, once for each id.
    #[command(after_help = CREDITS_EXAMPLES,
        mut_arg("until", |arg| arg.required(true).help(credits::UNTIL)))]
    Grant(credits::GrantArgs),
    /// Takes back what is left of a grant.
    #[command(after_help = CREDITS_EXAMPLES)]
    Revoke(credits::CreditArgs),
    /// The entry of a key in a list of hashes.
    #[command(after_help = HASH_EXAMPLES)]
    Hash(hash::HashArgs),
}

pub(crate) async fn run(command: KeyCommand) -> Result<Report, Failure> {
    match command {
        KeyCommand::Check(args) => status::check(&args).await,
        KeyCommand::Status(args) => status::status(&args).await,
        KeyCommand::Reset(args) => block::reset(&args).await,
        KeyCommand::Block(args) => block::block(&args).await,
        KeyCommand::Unblock(args) => block::unblock(&args).await,
        KeyCommand::Grant(args) => credits::grant(&args).await,
        KeyCommand::Revoke(args) => credits::revoke(&args).await,
        KeyCommand::Hash(args) => hash::hash(&args),
    }
}
