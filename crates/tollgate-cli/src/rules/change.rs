//! `tollgate rules override`, `switch`, `end` and `clear`: what operators set in all processes.

use std::{
    path::PathBuf,
    slice,
    time::{Duration, SystemTime},
};

use clap::{Arg, Args, builder::ArgPredicate};
use serde_json::json;
use tollgate_core::wall_clock;
use tollgate_rules::{
    Author, Format, OperatorEntry, RuleDocument,
    operators::{EntryKind, EntryStatus, StoredRules},
    redis::{PushError, PushErrorKind},
};

use crate::{
    args::{BecauseArgs, RedisArgs, UntilArgs, YesArgs},
    report::{self, Exit, Failure, Report},
    rule_args::{self, BoundNames, SharedRules},
    rules::show::{described, is_set},
};

pub(crate) const OVERRIDE_EXAMPLES: &str = "\
Examples:
  tollgate rules override search-per-key acme-key-1 200% --until 2026-12-04T18:00:00Z --because 'ticket 4711'
  tollgate rules override search-per-key acme-key-1 '500/s burst 1000' --until 3d --because 'launch week'
  tollgate rules override search-per-key acme-key-1 200% --because contract --file limits.toml

It lies beside the pushed rules, and stays in force when others are pushed. With --file it prints the lines to add to
that file.";

pub(crate) const SWITCH_EXAMPLES: &str = "\
Examples:
  tollgate rules switch '*' 50% --until 2h --because 'the database is slow'
  tollgate rules switch search-per-key shadow --until 2026-12-04T18:00:00Z --because 'ticket 4711'
  tollgate rules switch search-per-key off --because 'ticket 4711' --file limits.toml

It lies beside the pushed rules, and stays in force when others are pushed. With --file it prints the lines to add to
that file.";

pub(crate) const END_EXAMPLES: &str = "\
Examples:
  tollgate rules end 7 --because 'ticket 4711 is closed'
  tollgate rules clear --because 'the database is well again'

`tollgate rules show` has the numbers. What is written in the pushed rules ends when others are pushed.";

/// Where a change is made, and by whom.
#[derive(Args, Debug)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    pub(crate) because: BecauseArgs,

    #[command(flatten)]
    pub(crate) yes: YesArgs,

    #[command(flatten)]
    pub(crate) redis: RedisArgs,

    #[command(flatten)]
    pub(crate) bound: BoundNames,
}

/// What is set, where and until when.
#[derive(Args, Debug)]
struct SetArgs {
    #[command(flatten)]
    until: UntilArgs,

    #[command(flatten)]
    change: ChangeArgs,

    /// Where a service has its rules from a file: prints the lines to add to this file or folder, and asks no Redis.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

/// An argument about Redis, which `--file` does without.
pub(crate) fn unless_file(arg: Arg) -> Arg {
    arg.required(false)
        .required_unless_present("file")
        .default_value_if("file", ArgPredicate::IsPresent, "")
}

#[derive(Args, Debug)]
pub(crate) struct OverrideArgs {
    /// The name of the rule.
    rule: String,

    /// The client as it is known: its API key, its address, its tenant. Several parts have tabs between them.
    key: String,

    /// Its limit: as 500/s, unlimited, or a part of the rule's as 200%.
    limit: String,

    /// KEY is the client's hash, as `tollgate rules explain` prints it.
    #[arg(long)]
    hashed: bool,

    #[command(flatten)]
    set: SetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchArgs {
    /// The name of a rule, or '*' for all.
    rule: String,

    /// off, shadow, or a part of each limit as 50%.
    to: String,

    #[command(flatten)]
    set: SetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct EndArgs {
    /// Its number, as `tollgate rules show` prints it.
    id: u64,

    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) async fn set_override(args: &OverrideArgs) -> Result<Report, Failure> {
    let entry = match args.hashed {
        false => limit_of(&args.rule, slice::from_ref(&args.key), &args.limit),
        true => {
            let hash = u128::from_str_radix(&args.key, 16)
                .ok()
                .filter(|_| args.key.len() == 32)
                .ok_or_else(|| Failure::usage("KEY: with --hashed it has 32 hexadecimal digits"))?;
            OperatorEntry::limit_of_hash(&*args.rule, hash, &*args.limit)
        }
    };
    set(&args.set, entry).await
}

pub(crate) async fn switch(args: &SwitchArgs) -> Result<Report, Failure> {
    set(&args.set, OperatorEntry::switch(&*args.rule, &*args.to)).await
}

/// A limit of a client, whose parts are texts of their own or have tabs between them.
pub(crate) fn limit_of(rule: &str, key: &[String], limit: &str) -> OperatorEntry {
    let mut parts = key.iter().flat_map(|part| part.split('\t'));
    let entry = OperatorEntry::limit(rule, parts.next().unwrap_or_default(), limit);
    parts.fold(entry, OperatorEntry::and_key)
}

async fn set(args: &SetArgs, entry: OperatorEntry) -> Result<Report, Failure> {
    let change = &args.change;
    if let Some(path) = &args.file {
        let bindings = (change.bound).bindings(change.redis.secret.find()?.as_ref())?;
        let document = rule_args::document(path, &bindings)?;
        let now = report::then(wall_clock(), Duration::ZERO);
        let (entry, changes) = change.preview(entry, &args.until, &document, now)?;
        let text = entry.text(Format::of_path(path).unwrap_or(Format::Toml));
        let json = json!({ "lines": text, "changes": changes });
        return Ok(Report::verbatim(text, json));
    }
    let before = change.before().await?;
    let StoredRules { document, now, .. } = &before.stored;
    let (entry, lines) = change.preview(entry, &args.until, document, *now)?;
    let mut report = before.set(&[entry], &lines).await?;
    let revision = &report.json["revision"];
    report.text += &format!("\n`tollgate rules end {revision}` ends it");
    Ok(report)
}

pub(crate) async fn end(args: &EndArgs) -> Result<Report, Failure> {
    let before = args.change.before().await?;
    let mut entries = before.stored.document.entries();
    entries.retain(|entry| is_set(entry) && entry.id == Some(args.id));
    let lines: Vec<_> = entries.iter().map(ends).collect();
    if !lines.is_empty() {
        before.ask(&lines)?;
    }
    before.end(&[args.id], &lines).await
}

pub(crate) async fn clear(change: &ChangeArgs) -> Result<Report, Failure> {
    let before = change.before().await?;
    let mut switches = before.stored.document.entries();
    switches.retain(|entry| entry.kind == EntryKind::Switch);
    let (set, written): (Vec<_>, Vec<_>) = switches.iter().partition(|entry| is_set(entry));
    if set.is_empty() {
        let mut text = "no switch is set; nothing has changed".to_owned();
        if !written.is_empty() {
            let switches = written.len();
            text += &format!(
                "\n{switches} switches are written in the pushed rules: push rules without them"
            );
        }
        let json = json!({ "changed": false, "revision": before.stored.revision });
        return Ok(Report::new(text, json, true));
    }
    let lines: Vec<_> = set.iter().copied().map(ends).collect();
    before.ask(&lines)?;
    let ids: Vec<u64> = set.iter().filter_map(|entry| entry.id).collect();
    before.end(&ids, &lines).await
}

pub(crate) fn ends(entry: &EntryStatus) -> String {
    format!("ends: {}", described(entry))
}

/// What is in force before a change, and where it is changed.
pub(crate) struct Before<'a> {
    args: &'a ChangeArgs,
    pub(crate) shared: SharedRules<'a>,
    author: Author,
    pub(crate) stored: StoredRules,
}

impl ChangeArgs {
    pub(crate) async fn before(&self) -> Result<Before<'_>, Failure> {
        let author = self.because.author()?;
        let shared = SharedRules::new(&self.redis, &self.bound)?;
        let stored = shared.stored().await?.ok_or_else(|| {
            Failure::failed(
                "there are no rules in Redis yet; `tollgate rules push` puts some there. For services that read a file, \
                 `tollgate rules override … --file` and `rules switch … --file` print the lines to add",
            )
        })?;
        Ok(Before {
            args: self,
            shared,
            author,
            stored,
        })
    }

    /// An entry with its reason and its end, and what it changes.
    pub(crate) fn preview(
        &self,
        entry: OperatorEntry,
        until: &UntilArgs,
        document: &RuleDocument,
        now: SystemTime,
    ) -> Result<(OperatorEntry, Vec<String>), Failure> {
        let mut entry = entry.because(self.because.because.trim());
        if let Some(until) = until.time(now)? {
            entry = entry.until(until);
        }
        let lines = document.preview(entry.clone());
        Ok((entry, lines.map_err(Failure::usage)?))
    }
}

impl Before<'_> {
    /// Says what will be done, and asks.
    pub(crate) fn ask(&self, lines: &[String]) -> Result<(), Failure> {
        self.args.yes.ask(&format!(
            "{}\nin {} processes that follow the rules of {}",
            shown(lines),
            self.stored.fleet.processes,
            report::line(&self.args.redis.namespace, 70)
        ))
    }

    /// Sets them, after a question.
    pub(crate) async fn set(
        &self,
        entries: &[OperatorEntry],
        lines: &[String],
    ) -> Result<Report, Failure> {
        self.ask(lines)?;
        let shared = &self.shared;
        let set = shared.redis.set(entries, &shared.bindings, &self.author);
        self.report(shared.change(set).await?, lines).await
    }

    pub(crate) async fn end(&self, ids: &[u64], lines: &[String]) -> Result<Report, Failure> {
        let shared = &self.shared;
        let end = shared.redis.end(ids, &shared.bindings, &self.author);
        self.report(shared.change(end).await?, lines).await
    }

    /// What was done, and who follows.
    async fn report(&self, revision: u64, lines: &[String]) -> Result<Report, Failure> {
        let (follow, processes) = self.shared.followers().await;
        let text = format!("{}\nrevision {revision} is stored; {follow}", shown(lines));
        let json = json!({
            "changed": true,
            "revision": revision,
            "changes": lines,
            "processes": processes,
        });
        Ok(Report::new(text, json, true))
    }
}

impl SharedRules<'_> {
    /// What operators set.
    pub(super) async fn set(&self) -> Result<Vec<EntryStatus>, Failure> {
        let stored = self.stored().await?;
        let mut all = stored.map_or_else(Vec::new, |stored| stored.document.entries());
        all.retain(is_set);
        Ok(all)
    }

    /// The revision of a change, or why it may have been made nevertheless.
    pub(super) async fn change(
        &self,
        change: impl Future<Output = Result<u64, PushError>>,
    ) -> Result<u64, Failure> {
        change.await.map_err(|wrong| {
            let kind = wrong.kind();
            let mut failure = Failure::from(wrong);
            if kind == PushErrorKind::Document {
                failure.exit = Exit::No;
            }
            if kind == PushErrorKind::Unavailable {
                failure.message +=
                    "\nthe push may have arrived nevertheless: `tollgate rules history` says what is stored";
            }
            failure
        })
    }

    /// Who follows a change that is stored, whatever becomes of this question.
    pub(super) async fn followers(&self) -> (String, Option<u64>) {
        match self.redis.fleet().await.map(|fleet| fleet.processes) {
            Ok(0) => {
                let namespace = report::line(&self.args.namespace, 70);
                report::warn(&format!(
                    "no process follows the rules of {namespace} in Redis, so nothing has changed for clients yet; a service that has \
                     its rules from a file alone needs the change in that file"
                ));
                ("no process follows the rules yet".to_owned(), Some(0))
            }
            Ok(number) => (
                format!(
                    "{number} processes follow the rules; those with this secret have it in force within seconds"
                ),
                Some(number),
            ),
            Err(wrong) => (
                format!("how many processes follow the rules is not known: {wrong}"),
                None,
            ),
        }
    }
}

fn shown(lines: &[String]) -> String {
    if lines.is_empty() {
        return "nothing differs but who set it".to_owned();
    }
    let lines = lines.iter().map(|line| report::line(line, 300));
    lines.collect::<Vec<_>>().join("\n")
}
