//! `tollgate key grant` and `revoke`: the balance of one client.

use std::slice;

use clap::Args;
use serde_json::json;
use tollgate::{Key, Limiter, RuleError};
use tollgate_core::{Step, StoreError, types::Balance, wall_clock};
use tollgate_rules::AuditKind;

use crate::{
    args::{BecauseArgs, UntilArgs, YesArgs},
    key::states::{NamedClient, States},
    ledger::DatabaseArgs,
    report::{self, Failure, Report},
    rule_args::StateArgs,
};

/// Whose balance.
#[derive(Args, Debug)]
pub(crate) struct CreditArgs {
    #[command(flatten)]
    client: NamedClient,

    /// The grant's id, such as the number of an invoice: however often the command is repeated, each id grants once.
    #[arg(long, value_name = "ID")]
    id: String,

    #[command(flatten)]
    because: BecauseArgs,

    #[command(flatten)]
    ledger: DatabaseArgs,

    #[command(flatten)]
    yes: YesArgs,

    #[command(flatten)]
    states: StateArgs,
}

#[derive(Args, Debug)]
pub(crate) struct GrantArgs {
    #[command(flatten)]
    credits: CreditArgs,

    /// How many units.
    #[arg(long, value_name = "UNITS")]
    units: u64,

    #[command(flatten)]
    until: UntilArgs,
}

pub(crate) const UNTIL: &str = "When they end: a time with its zone, as 2027-12-31T23:59:59Z, or how long they last, as 365d. A later \
     end prolongs what is there";

/// An answer about a balance.
type Answer = Result<Step<Result<Balance, StoreError>>, RuleError>;

pub(crate) async fn grant(args: &GrantArgs) -> Result<Report, Failure> {
    let (credits, units) = (&args.credits, args.units);
    let now = report::then(wall_clock(), std::time::Duration::ZERO);
    let until = args
        .until
        .time(now)?
        .filter(|until| *until > now)
        .ok_or_else(|| Failure::usage("--until: credits have an end that is to come, as 365d"))?;
    let what = format!("is granted {units} units until {}", report::time(until));
    let grant = |limiter: &Limiter, rule: &str, key: &Key| {
        limiter.grant(rule, key, units, until, &credits.id)
    };
    let balance = credits.change(&what, grant).await?;
    let said = match balance.changed {
        0 => "this id has granted before, these units or others; nothing has changed".to_owned(),
        units => format!("{units} units were granted"),
    };
    Ok(report(&said, &balance))
}

pub(crate) async fn revoke(credits: &CreditArgs) -> Result<Report, Failure> {
    let revoke = |limiter: &Limiter, rule: &str, key: &Key| limiter.revoke(rule, key, &credits.id);
    let balance = credits
        .change("loses what is left of the grant", revoke)
        .await?;
    let said = match balance.changed {
        0 => "nothing is left of this grant, or it is not known".to_owned(),
        units => format!("{units} units were taken back"),
    };
    Ok(report(&said, &balance))
}

fn report(said: &str, balance: &Balance) -> Report {
    let text = format!("{said}; the client has {}", shown(balance));
    let mut json = balance_json(balance);
    json["changed"] = json!(balance.changed);
    Report::new(text, json, balance.changed > 0)
}

/// A balance in words.
pub(crate) fn shown(balance: &Balance) -> String {
    match balance.until {
        Some(until) => format!("{} credits until {}", balance.units, report::time(until)),
        None => "no credits".to_owned(),
    }
}

pub(crate) fn balance_json(balance: &Balance) -> serde_json::Value {
    json!({ "units": balance.units, "until": balance.until.map(report::time) })
}

impl CreditArgs {
    /// Changes the balance, after a question, and writes it into the audit.
    async fn change(
        &self,
        what: &str,
        change: impl FnOnce(&Limiter, &str, &Key) -> Answer,
    ) -> Result<Balance, Failure> {
        let author = self.because.author()?;
        let document = self.states.document().await?;
        let client = self.client.explained(&document, &self.client.rule)?;
        let Some(key) = client.key.as_ref().filter(|_| client.counts()) else {
            let (rule, why) = (&client.rule, &client.outcome);
            return Err(Failure::usage(format!("{rule}: {why}")));
        };
        if !client.limiter_rule.has_credits() {
            let rule = &client.rule;
            return Err(Failure::usage(format!(
                "{rule}: it takes no credits; add `credits = true` to the rule"
            )));
        }
        let clients = slice::from_ref(&client);
        let ledger = self.ledger.of_rules(clients).await?;
        let what = format!("{what}, by the id {:?}", self.id);
        let question = format!("{}: the client {what}", client.rule);
        self.yes.ask(&report::line(&question, 500))?;
        let (redis, keys) = (&self.states.redis, &self.states.keys);
        let partition = keys.one_partition(redis)?;
        let ledger = ledger.as_ref();
        let states = States::find(redis, keys, clients, partition, &[], true, ledger).await?;
        let answer = change(&states.limiter, client.limiter_rule.name(), key)
            .map_err(Failure::usage)?
            .await;
        let balance = answer.map_err(|wrong| match wrong.is_transient() {
            true => Failure::failed(format!(
                "{wrong}\nit may have been done; repeat the command, which does it once"
            )),
            false => Failure::failed(wrong),
        })?;
        if balance.changed > 0 {
            let clients = [&client];
            let record = redis.record(AuditKind::Credits, &clients, &what, &author);
            record.await;
        }
        Ok(balance)
    }
}
