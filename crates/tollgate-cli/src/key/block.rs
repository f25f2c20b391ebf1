//! `tollgate key block` and `unblock`: nothing passes for one client, in all processes.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use tollgate_rules::{
    RuleDocument,
    operators::{EntryKind, Explanation},
};

use crate::{
    change_args::UntilArgs,
    failure::Failure,
    key::{client_args::NamedClient, reset::forget},
    redis_args::KeyArgs,
    report::Report,
    rule_args::SharedRules,
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
        let rules: Vec<_> = document.keyed_rules().collect();
        let (own, others): (Vec<_>, Vec<_>) =
            (rules.iter()).partition(|(rule, _)| rule.name() == self.client.rule);
        let same = others
            .iter()
            .filter(|(_, by)| own.iter().any(|(_, own)| own == by));
        same.map(|(rule, _)| rule.name().to_owned()).collect()
    }
}

pub(crate) async fn block(args: &BlockArgs) -> Result<Report, Failure> {
    let (blocked, change) = (&args.blocked, &args.blocked.change);
    let before = change.before().await?;
    let document = &before.stored.document;
    let routes = routes(&before.shared).await?;
    let (mut entries, mut lines) = (Vec::new(), Vec::new());
    for explained in blocked.explained(document)? {
        let entry = limit_of(&explained.rule, &blocked.client.key, "none");
        let entry = change.entry(entry, args.until, before.stored.now)?;
        lines.extend(before.preview(&entry)?);
        lines.extend(routes.get(&explained.rule).cloned());
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

/// Which requests each rule counts, as the stored document says it.
async fn routes(shared: &SharedRules<'_>) -> Result<BTreeMap<String, String>, Failure> {
    let stored = shared.args.in_time(shared.redis.document()).await??;
    let (_, text) = stored.unwrap_or((0, "{}".to_owned()));
    let document: Value = serde_json::from_str(&text).map_err(Failure::failed)?;
    let rules = document["rules"].as_array().into_iter().flatten();
    let said = rules.filter_map(|rule| {
        let name = rule["name"].as_str()?;
        let routes = match [&rule["when"], &rule["unless"]] {
            [Value::Null, Value::Null] => "every request of the routes behind its layer".to_owned(),
            [when, Value::Null] => format!("requests with {when}"),
            [Value::Null, unless] => format!("requests without {unless}"),
            [when, unless] => format!("requests with {when} and without {unless}"),
        };
        Some((name.to_owned(), format!("{name} counts {routes}")))
    });
    Ok(said.collect())
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
    let names: Vec<&str> = explained.iter().map(|it| &*it.rule).collect();
    lines.push(format!(
        "forgets what the client has used of {}",
        names.join(", ")
    ));
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
