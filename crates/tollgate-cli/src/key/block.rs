//! `tollgate key block` and `unblock`: nothing passes for one client, in all processes.

use clap::Args;
use serde_json::json;
use tollgate::{Consistency, Limiter};
use tollgate_redis::Partition;
use tollgate_rules::{
    OperatorEntry, RuleDocument,
    operators::{EntryKind, EntryStatus, Explanation},
};

use crate::{
    change_args::UntilArgs,
    exit::Exit,
    failure::Failure,
    redis_args::KeyArgs,
    report::Report,
    rules::{ChangeArgs, described, is_set},
};

/// Which client, under which rules.
#[derive(Args, Debug)]
pub(crate) struct BlockedArgs {
    /// The name of the rule.
    rule: String,

    /// The client as it is known: its API key, its address, its tenant. Several parts have tabs between them.
    key: String,

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
        let parts: Vec<&str> = self.key.split('\t').collect();
        let explain = |rule: &str| {
            let explained = document.explain_key(rule, &parts);
            explained.map_err(|wrong| Failure::usage(wrong.to_string()))
        };
        let named = explain(&self.rule)?;
        if !self.everywhere {
            return Ok(vec![named]);
        }
        let same = self.same(document);
        let all = same.iter().map(|rule| explain(rule));
        std::iter::once(Ok(named)).chain(all).collect()
    }

    /// The other rules that count by the same.
    fn same(&self, document: &RuleDocument) -> Vec<String> {
        let rules: Vec<_> = document.keyed_rules().collect();
        let own = rules.iter().find(|(rule, _)| rule.name() == self.rule);
        let same = rules
            .iter()
            .filter(|(rule, by)| rule.name() != self.rule && own.is_some_and(|(_, own)| own == by));
        same.map(|(rule, _)| rule.name().to_owned()).collect()
    }

    /// Where the client stays admitted.
    fn note(&self, document: &RuleDocument) -> String {
        let same = self.same(document);
        match self.everywhere || same.is_empty() {
            true => String::new(),
            false => format!(
                "\nnot under {}, which count by the same: --everywhere",
                same.join(", ")
            ),
        }
    }
}

pub(crate) async fn block(args: &BlockArgs) -> Result<Report, Failure> {
    let (blocked, change) = (&args.blocked, &args.blocked.change);
    let (redis, bindings, stored) = change.stored().await?;
    let document = &stored.document;
    let until = args.until.time(stored.now)?;
    let (mut entries, mut lines) = (Vec::new(), Vec::new());
    for explained in blocked.explained(document)? {
        let mut parts = blocked.key.split('\t');
        let first = parts.next().unwrap_or_default();
        let entry = OperatorEntry::limit(explained.rule, first, "none");
        let mut entry = parts.fold(entry, OperatorEntry::and_key);
        entry = entry.because(change.because.because.trim());
        if let Some(until) = until {
            entry = entry.until(until);
        }
        let preview = document.preview(entry.clone());
        lines.extend(preview.map_err(Failure::mistakes)?);
        entries.push(entry);
    }
    let author = change.because.author()?;
    let note = blocked.note(document);
    change.ask(&stored, &lines)?;
    let mut report = None;
    for entry in entries {
        let made = redis.set(entry, &bindings, &author);
        report = Some(change.make(&redis, made, &lines).await?);
    }
    let mut report = report.ok_or_else(|| Failure::failed("there is no rule to block under"))?;
    report.text.push_str(&format!(
        "{note}\n`tollgate key unblock` lifts it: the client is denied with the reason `blocked` meanwhile"
    ));
    Ok(report)
}

pub(crate) async fn unblock(args: &UnblockArgs) -> Result<Report, Failure> {
    let (blocked, change) = (&args.blocked, &args.blocked.change);
    let (redis, bindings, stored) = change.stored().await?;
    let explained = blocked.explained(&stored.document)?;
    let entries = stored.document.entries();
    let is_of_client = |entry: &&EntryStatus| {
        entry.kind == EntryKind::Override
            && entry.limit.starts_with("none")
            && explained
                .iter()
                .any(|rule| entry.rules == rule.rule && entry.client == rule.key_hash)
    };
    let (set, written): (Vec<_>, Vec<_>) = entries
        .iter()
        .filter(is_of_client)
        .partition(|entry| is_set(entry));
    let mut lines: Vec<String> = set
        .iter()
        .map(|entry| format!("ends: {}", described(entry)))
        .collect();
    let names: Vec<&str> = explained.iter().map(|it| &*it.rule).collect();
    lines.push(format!(
        "forgets what the client has used of {}",
        names.join(", ")
    ));
    let author = change.because.author()?;
    change.ask(&stored, &lines)?;
    let mut text = lines.join("\n");
    let ids: Vec<u64> = set.iter().filter_map(|entry| entry.id).collect();
    if !ids.is_empty() {
        let ended = redis.end(&ids, &bindings, &author);
        text = change.make(&redis, ended, &lines).await?.text;
    }
    let had_state = reset(args, &explained).await?;
    if !written.is_empty() {
        text.push_str("\nit is blocked by the pushed rules as well: push rules without that");
    }
    let json = json!({
        "changed": !set.is_empty() || had_state,
        "ended": ids,
        "had_state": had_state,
    });
    let exit = Exit::of(!set.is_empty() || had_state);
    Ok(Report::new(text, json, exit))
}

/// Forgets what the client has used, and its growing blocks with it.
async fn reset(args: &UnblockArgs, explained: &[Explanation]) -> Result<bool, Failure> {
    let redis = &args.blocked.change.redis;
    let partitions = match &args.keys.partition {
        Some(named) => vec![named.0.clone()],
        None => vec![Partition::One, Partition::Key],
    };
    let mut had_state = false;
    for partition in partitions {
        let store = redis.store(&args.keys, partition).await?;
        let exact = explained
            .iter()
            .map(|rule| rule.limiter_rule.clone().consistency(Consistency::Exact));
        let limiter = Limiter::new(store, exact).map_err(Failure::failed)?;
        for rule in explained {
            let Some(key) = &rule.key else { continue };
            let reset = limiter.reset(rule.limiter_rule.name(), key);
            let reset = reset.map_err(Failure::failed)?.await;
            had_state |=
                reset.map_err(|wrong| Failure::failed(format!("{}: {wrong}", rule.rule)))?;
        }
    }
    Ok(had_state)
}
