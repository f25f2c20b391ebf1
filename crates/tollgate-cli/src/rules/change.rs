//! `tollgate rules override`, `switch`, `end` and `clear`: what operators set in all processes.

use std::path::PathBuf;

use clap::{Arg, Args, builder::ArgPredicate};
use serde_json::json;
use tollgate_rules::{
    Bindings, Format, OperatorEntry,
    operators::{EntryKind, StoredRules},
    redis::{PushError, PushErrorKind, RedisRules},
};

use crate::{
    bound_names::BoundNames,
    change_args::{BecauseArgs, UntilArgs, YesArgs},
    exit::Exit,
    failure::Failure,
    printable,
    redis_args::RedisArgs,
    report::Report,
    rule_args,
    rules::show::{described, is_set},
};

pub(crate) const OVERRIDE_EXAMPLES: &str = "\
Examples:
  tollgate rules override search-per-key acme-key-1 200% --until 2026-12-04T18:00:00Z --because 'ticket 4711'
  tollgate rules override search-per-key acme-key-1 '500/s burst 1000' --until 3d --because 'launch week'
  tollgate rules override search-per-key acme-key-1 200% --because contract --file limits.toml

(with REDIS_URL, TOLLGATE_NAMESPACE and TOLLGATE_SECRET set)

It lies beside the pushed rules, and stays in force when others are pushed. With --file it prints the lines to add to
that file.";

pub(crate) const SWITCH_EXAMPLES: &str = "\
Examples:
  tollgate rules switch '*' 50% --until 2h --because 'the database is slow'
  tollgate rules switch search-per-key shadow --until 2026-12-04T18:00:00Z --because 'ticket 4711'
  tollgate rules switch search-per-key off --because 'ticket 4711' --file limits.toml

(with REDIS_URL, TOLLGATE_NAMESPACE and TOLLGATE_SECRET set)

It lies beside the pushed rules, and stays in force when others are pushed. With --file it prints the lines to add to
that file.";

pub(crate) const END_EXAMPLES: &str = "\
Examples:
  tollgate rules end 7 --because 'ticket 4711 is closed'
  tollgate rules end 7 --because 'ticket 4711 is closed' --yes

`tollgate rules show` has the numbers. What is written in the pushed rules ends when others are pushed.";

pub(crate) const CLEAR_EXAMPLES: &str = "\
Examples:
  tollgate rules clear --because 'the database is well again'
  tollgate rules clear --because 'the database is well again' --yes

It ends all switches that operators set. Overrides stay; `tollgate rules end` ends one.";

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

/// What is set, where a service has its rules from a file.
#[derive(Args, Debug)]
struct FileArgs {
    /// Prints the lines to add to this file or folder of rules, and asks no Redis.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
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
    until: UntilArgs,

    #[command(flatten)]
    change: ChangeArgs,

    #[command(flatten)]
    file: FileArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SwitchArgs {
    /// The name of a rule, or '*' for all.
    rule: String,

    /// off, shadow, or a part of each limit as 50%.
    to: String,

    #[command(flatten)]
    until: UntilArgs,

    #[command(flatten)]
    change: ChangeArgs,

    #[command(flatten)]
    file: FileArgs,
}

#[derive(Args, Debug)]
pub(crate) struct EndArgs {
    /// Its number, as `tollgate rules show` prints it.
    id: u64,

    #[command(flatten)]
    change: ChangeArgs,
}

/// An argument about Redis, which `--file` does without.
pub(crate) fn unless_file(arg: Arg) -> Arg {
    arg.required(false)
        .required_unless_present("file")
        .default_value_if("file", ArgPredicate::IsPresent, "")
}

pub(crate) async fn set_override(args: &OverrideArgs) -> Result<Report, Failure> {
    let (change, file) = (&args.change, args.file.file.as_ref());
    let place = Place::find(change, file).await?;
    let mut entry = match args.hashed {
        false => {
            let mut parts = args.key.split('\t');
            let first = parts.next().unwrap_or_default();
            let entry = OperatorEntry::limit(&*args.rule, first, &*args.limit);
            parts.fold(entry, OperatorEntry::and_key)
        }
        true => {
            let hash = u128::from_str_radix(&args.key, 16).ok();
            let hash = hash
                .filter(|_| args.key.len() == 32)
                .ok_or_else(|| Failure::usage("KEY: with --hashed it has 32 hexadecimal digits"))?;
            OperatorEntry::limit_of_hash(&*args.rule, hash, &*args.limit)
        }
    };
    entry = entry.because(change.because.because.trim());
    if let Some(until) = args.until.time(place.now())? {
        entry = entry.until(until);
    }
    let lines = place.preview(entry.clone())?;
    let Place::Redis(redis, bindings, stored) = place else {
        return Ok(to_add(&entry, file, &lines));
    };
    let author = change.because.author()?;
    change.ask(&stored, &lines)?;
    let made = redis.set(entry, &bindings, &author);
    Ok(with_end(change.make(&redis, made, &lines).await?))
}

pub(crate) async fn switch(args: &SwitchArgs) -> Result<Report, Failure> {
    let (change, file) = (&args.change, args.file.file.as_ref());
    let place = Place::find(change, file).await?;
    let mut entry =
        OperatorEntry::switch(&*args.rule, &*args.to).because(change.because.because.trim());
    if let Some(until) = args.until.time(place.now())? {
        entry = entry.until(until);
    }
    let lines = place.preview(entry.clone())?;
    let Place::Redis(redis, bindings, stored) = place else {
        return Ok(to_add(&entry, file, &lines));
    };
    let author = change.because.author()?;
    change.ask(&stored, &lines)?;
    let made = redis.set(entry, &bindings, &author);
    Ok(with_end(change.make(&redis, made, &lines).await?))
}

pub(crate) async fn end(args: &EndArgs) -> Result<Report, Failure> {
    let change = &args.change;
    let (redis, bindings, stored) = change.stored().await?;
    let entries = stored.document.entries();
    let of_redis = |entry: &&_| is_set(entry);
    let found = entries.iter().filter(of_redis);
    let lines: Vec<_> = found
        .filter(|entry| entry.id == Some(args.id))
        .map(|entry| format!("ends: {}", described(entry)))
        .collect();
    let author = change.because.author()?;
    if !lines.is_empty() {
        change.ask(&stored, &lines)?;
    }
    change
        .make(&redis, redis.end(&[args.id], &bindings, &author), &lines)
        .await
}

pub(crate) async fn clear(change: &ChangeArgs) -> Result<Report, Failure> {
    let (redis, bindings, stored) = change.stored().await?;
    let entries = stored.document.entries();
    let switches = entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::Switch);
    let (set, written): (Vec<_>, Vec<_>) = switches.partition(|entry| is_set(entry));
    if set.is_empty() {
        let mut text = "no switch is set; nothing has changed".to_owned();
        if !written.is_empty() {
            let switches = written.len();
            text.push_str(&format!(
                "\n{switches} switches are written in the pushed rules: push rules without them"
            ));
        }
        let json = json!({ "changed": false, "revision": stored.revision });
        return Ok(Report::new(text, json, Exit::Yes));
    }
    let lines: Vec<_> = set
        .iter()
        .map(|entry| format!("ends: {}", described(entry)))
        .collect();
    let author = change.because.author()?;
    change.ask(&stored, &lines)?;
    let ids: Vec<u64> = set.iter().filter_map(|entry| entry.id).collect();
    change
        .make(&redis, redis.end(&ids, &bindings, &author), &lines)
        .await
}

/// With how it is ended.
fn with_end(mut report: Report) -> Report {
    let revision = &report.json["revision"];
    report
        .text
        .push_str(&format!("\n`tollgate rules end {revision}` ends it"));
    report
}

/// Where an entry is set.
enum Place {
    Redis(RedisRules, Bindings, Box<StoredRules>),
    File(tollgate_rules::RuleDocument),
}

impl Place {
    async fn find(change: &ChangeArgs, file: Option<&PathBuf>) -> Result<Self, Failure> {
        let Some(path) = file else {
            let (redis, bindings, stored) = change.stored().await?;
            return Ok(Self::Redis(redis, bindings, Box::new(stored)));
        };
        let bindings = change
            .bound
            .bindings(change.redis.secret.find()?.as_ref())?;
        Ok(Self::File(rule_args::document(path, &bindings).await?))
    }

    /// The time by the clock of Redis, if one is asked.
    fn now(&self) -> std::time::SystemTime {
        match self {
            Self::Redis(.., stored) => stored.now,
            Self::File(_) => {
                std::time::UNIX_EPOCH
                    + std::time::Duration::from_micros(tollgate::Clock::system().now())
            }
        }
    }

    fn preview(&self, entry: OperatorEntry) -> Result<Vec<String>, Failure> {
        let document = match self {
            Self::Redis(.., stored) => &stored.document,
            Self::File(document) => document,
        };
        document.preview(entry).map_err(Failure::mistakes)
    }
}

impl ChangeArgs {
    /// What is in force before the change.
    pub(crate) async fn stored(&self) -> Result<(RedisRules, Bindings, StoredRules), Failure> {
        let secret = self.redis.secret()?;
        let bindings = self.bound.bindings(Some(&secret))?;
        let redis = self.redis.rules(&secret)?;
        let stored = self.redis.in_time(redis.stored(&bindings)).await??;
        let stored = stored.ok_or_else(|| {
            Failure::failed("there are no rules in Redis yet; `tollgate rules push` puts some there. Services that read a file: --file")
        })?;
        Ok((redis, bindings, stored))
    }

    /// Says what will be done, and asks.
    pub(crate) fn ask(&self, stored: &StoredRules, lines: &[String]) -> Result<(), Failure> {
        self.yes.ask(&format!(
            "{}\nin {} processes that follow the rules of {}",
            shown(lines),
            stored.fleet.processes,
            printable::line(&self.redis.namespace, 70)
        ))
    }

    /// Does it, and says who follows.
    pub(crate) async fn make(
        &self,
        redis: &RedisRules,
        change: impl Future<Output = Result<u64, PushError>>,
        lines: &[String],
    ) -> Result<Report, Failure> {
        let revision = stored_in_time(&self.redis, change).await?;
        let (follow, processes) = followers(&self.redis, redis).await;
        let text = format!("{}\nrevision {revision} is stored; {follow}", shown(lines));
        let json = json!({
            "changed": true,
            "revision": revision,
            "changes": lines,
            "processes": processes,
        });
        Ok(Report::new(text, json, Exit::Yes))
    }
}

/// The revision of a change, or why it may have been made nevertheless.
pub(super) async fn stored_in_time(
    redis: &RedisArgs,
    change: impl Future<Output = Result<u64, PushError>>,
) -> Result<u64, Failure> {
    let may_have_arrived = |failure: &Failure| {
        Failure::failed(format!(
            "{}\nthe push may have arrived nevertheless: `tollgate rules history` says what is stored",
            failure.message
        ))
    };
    match redis.in_time(change).await {
        Ok(stored) => stored.map_err(|wrong| match wrong.kind() {
            PushErrorKind::Unavailable => may_have_arrived(&wrong.into()),
            _ => wrong.into(),
        }),
        Err(late) => Err(may_have_arrived(&late)),
    }
}

/// Who follows a change that is stored, whatever becomes of this question.
pub(super) async fn followers(args: &RedisArgs, redis: &RedisRules) -> (String, Option<u64>) {
    let answer = args.in_time(redis.fleet()).await;
    match answer.and_then(|fleet| Ok(fleet?)) {
        Ok(fleet) => {
            let processes = fleet.processes;
            let text = format!(
                "{processes} processes follow the rules, and have it in force within seconds"
            );
            (text, Some(processes))
        }
        Err(failure) => {
            let why = failure.message;
            (
                format!("how many processes follow the rules is not known: {why}"),
                None,
            )
        }
    }
}

fn shown(lines: &[String]) -> String {
    match lines {
        [] => "nothing differs but who set it".to_owned(),
        lines => {
            let lines = lines.iter().map(|line| printable::line(line, 300));
            lines.collect::<Vec<_>>().join("\n")
        }
    }
}

/// The lines to add to a file.
fn to_add(entry: &OperatorEntry, file: Option<&PathBuf>, changes: &[String]) -> Report {
    let extension = file.and_then(|path| path.extension()?.to_str());
    let format = match extension {
        Some("json") => Format::Json,
        Some("yaml" | "yml") => Format::Yaml,
        _ => Format::Toml,
    };
    let text = entry.text(format);
    let json = json!({ "lines": text, "changes": changes });
    Report::verbatim(text, json)
}
