//! `tollgate key reset`: lets a client start anew; `block` and `unblock`: nothing passes for one client, in all processes.

use clap::Args;
use serde_json::{Value, json};
use tollgate_core::Rule;
use tollgate_redis::Partition;
use tollgate_rules::{
    AuditKind, RuleDocument,
    operators::{EntryKind, Explanation},
};

use crate::{
    args::{BecauseArgs, KeyArgs, RedisArgs, UntilArgs, YesArgs},
    key::states::{ClientArgs, NamedClient, States, is_asked, uncounted},
    report::{self, Failure, Report, Table},
    rules::{ChangeArgs, ends, is_set, limit_of},
};

/// Which client, under which rules.
#[derive(Args, Debug)]
pub(crate) struct BlockedArgs {
    #[command(flatten)]
    client: NamedClient,

    /// Under each rule that counts by the same.
    #[arg(long)]
    everywhere: bool,

    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct BlockArgs {
    #[command(flatten)]
    blocked: BlockedArgs,

    #[command(flatten)]
    until: UntilArgs,
}

#[derive(Args, Debug)]
pub(crate) struct UnblockArgs {
    #[command(flatten)]
    blocked: BlockedArgs,

    #[command(flatten)]
    keys: KeyArgs,
}

impl BlockedArgs {
    /// The client under the rule, or under each that counts by the same.
    fn explained(&self, document: &RuleDocument) -> Result<Vec<Explanation>, Failure> {
        let mut rules = vec![self.client.rule.clone()];
        if self.everywhere {
            rules.extend(self.same(document));
        }
        let explained = rules
            .iter()
            .map(|rule| self.client.explained(document, rule));
        explained.collect()
    }

    /// The other rules that count by the same.
    fn same(&self, document: &RuleDocument) -> Vec<String> {
        let is_own = |(rule, _): &(Rule, Vec<&str>)| rule.name() == self.client.rule;
        let (own, others): (Vec<_>, Vec<_>) = document.keyed_rules().partition(is_own);
        let same = (others.iter()).filter(|(_, by)| own.iter().any(|(_, own)| own == by));
        same.map(|(rule, _)| rule.name().to_owned()).collect()
    }
}

pub(crate) async fn block(args: &BlockArgs) -> Result<Report, Failure> {
    let (blocked, change) = (&args.blocked, &args.blocked.change);
    let before = change.before().await?;
    let document = &before.stored.document;
    let (mut entries, mut lines) = (Vec::new(), Vec::new());
    for explained in blocked.explained(document)? {
        let entry = limit_of(&explained.rule, &blocked.client.key, "none");
        let (entry, changes) = change.preview(entry, &args.until, document, before.stored.now)?;
        lines.extend(changes);
        lines.push(routes(document, &explained.rule)?);
        entries.push(entry);
    }
    // All at once: none of the rules still lets the client pass.
    let mut report = before.set(&entries, &lines).await?;
    let same = blocked.same(document);
    if !blocked.everywhere && !same.is_empty() {
        report.text += &format!(
            "\nnot under {}, which count by the same: --everywhere",
            same.join(", ")
        );
    }
    report.text += "\n`tollgate key unblock` lifts it: the client is denied with the reason `blocked` meanwhile";
    Ok(report)
}

/// Which requests a rule counts, as the document says it.
fn routes(document: &RuleDocument, rule: &str) -> Result<String, Failure> {
    let written = document.written(rule).unwrap_or("{}");
    let written: Value = serde_json::from_str(written).map_err(Failure::failed)?;
    let routes = match [&written["when"], &written["unless"]] {
        [Value::Null, Value::Null] => "every request of the routes behind its layer".to_owned(),
        [when, Value::Null] => format!("requests with {when}"),
        [Value::Null, unless] => format!("requests without {unless}"),
        [when, unless] => format!("requests with {when} and without {unless}"),
    };
    Ok(format!("{rule} counts {routes}"))
}

pub(crate) async fn unblock(args: &UnblockArgs) -> Result<Report, Failure> {
    let blocked = &args.blocked;
    let before = blocked.change.before().await?;
    let explained = blocked.explained(&before.stored.document)?;
    let mut entries = before.stored.document.entries();
    entries.retain(|entry| {
        let is_of = |it: &Explanation| entry.rules == it.rule && entry.client == it.key_hash;
        entry.kind == EntryKind::Override
            && entry.limit.starts_with("none")
            && explained.iter().any(is_of)
    });
    let (set, written): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_set(entry));
    let mut lines: Vec<String> = set.iter().copied().map(ends).collect();
    if lines.is_empty() {
        lines.push("ends nothing: no block of the client is set".to_owned());
    }
    let counting = explained.iter().filter(|it| it.counts());
    let names: Vec<&str> = counting.map(|it| &*it.rule).collect();
    lines.push(match &*names.join(", ") {
        "" => "forgets nothing: none of the rules counts the client at present".to_owned(),
        names => format!("forgets what the client has used of {names}"),
    });
    before.ask(&lines)?;
    let mut text = lines.join("\n");
    let ids: Vec<u64> = set.iter().filter_map(|entry| entry.id).collect();
    if !ids.is_empty() {
        text = before.end(&ids, &lines).await?.text;
    }
    let redis = &blocked.change.redis;
    let forgotten = forget(redis, &args.keys, &explained, &[]).await?;
    let had_state = forgotten.iter().any(|it| it.had_state);
    if !written.is_empty() {
        text += "\nit is blocked by the pushed rules as well: push rules without that";
    }
    let changed = !ids.is_empty() || had_state;
    let json = json!({ "changed": changed, "ended": ids, "had_state": had_state });
    Ok(Report::new(text, json, changed))
}

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

pub(crate) async fn reset(reset: &ResetArgs) -> Result<Report, Failure> {
    let args = &reset.client;
    let explained = args.explained().await?;
    if let Some(lines) = uncounted(&explained) {
        return Err(Failure::usage(lines));
    }
    let author = reset.because.author()?;
    let is_asked = |rule: &&Explanation| rule.counts() && is_asked(&args.only, &rule.rule);
    let mut asked: Vec<_> = explained.iter().filter(is_asked).collect();
    let rules: Vec<_> = asked.iter().map(|rule| &*rule.rule).collect();
    reset.yes.ask(&format!(
        "what the client has used is forgotten under {}",
        report::line(&rules.join(", "), 300)
    ))?;
    let (redis, keys) = (&args.states.redis, &args.states.keys);
    let forgotten = forget(redis, keys, &explained, &args.only).await?;
    let mut table = Table::new("rule | by partition | state");
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
    asked.retain(|rule| (forgotten.iter()).any(|it| it.had_state && it.rule == rule.rule));
    if had_any {
        let record = redis.record(AuditKind::Reset, &asked, "starts anew", &author);
        record.await;
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
    let by_rule = keys
        .partition
        .clone()
        .filter(|named| matches!(named, Partition::ByRule(_)));
    for partition in [Partition::One, Partition::Key].into_iter().chain(by_rule) {
        let states = States::find(redis, keys, explained, partition, only, true, None).await?;
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
