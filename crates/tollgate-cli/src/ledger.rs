//! `tollgate ledger`: what accounts have used, line by line, and corrections.

use std::{
    io::{self, BufWriter, IsTerminal as _, StdoutLock, Write},
    ops::ControlFlow,
    path::Path,
    time::Duration,
};

use clap::{Args, Subcommand};
use serde_json::json;
use tollgate::{Consistency, Limiter};
use tollgate_core::Tick;
use tollgate_ledger::{
    AccountUsage, Adjustment, DailyUsage, Drift, Entry, Ledger, LedgerError, LedgerErrorKind,
    Period, Reconciliation, ReportRow,
};
use tollgate_rules::operators::Explanation;

use crate::{
    args::BecauseArgs,
    report::{self, Failure, Report, Table, ascii},
    rule_args::StateArgs,
};

const REPORT_EXAMPLES: &str = "\
Examples:
  tollgate ledger statement acme --month 2026-07
  tollgate ledger statement acme --rule units-per-tenant > acme.csv
  tollgate ledger usage --month 2026-07 > july.csv
  tollgate ledger usage acme --json
  tollgate ledger usage --daily --month 2026-07 > days.csv

A window belongs to the period that its middle is in. Rows are printed as they come, as CSV, however many there are.";

const ADJUST_EXAMPLES: &str = "\
Examples:
  tollgate ledger adjust acme units-per-tenant -500 --id ticket-4711 --because 'the outage of Tuesday'

Negative units are given back. An id is written once, however often it is sent. The counter in Redis follows with
`tollgate ledger reconcile --repair`. Exit code 1: it was written before.";

const RECONCILE_EXAMPLES: &str = "\
Examples:
  tollgate ledger reconcile --per-second 200
  tollgate ledger reconcile --repair

Counters that differ are read again after three seconds. Exit code 1: some still differ. Counters of an
account whose units several keys have are left.";

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// The entries of an account, with a running sum for each rule and window.
    #[command(after_help = REPORT_EXAMPLES)]
    Statement(StatementArgs),
    /// What accounts have used in each window, or on each day.
    #[command(after_help = REPORT_EXAMPLES)]
    Usage(UsageArgs),
    /// Gives or takes units, with a reason.
    #[command(after_help = ADJUST_EXAMPLES)]
    Adjust(AdjustArgs),
    /// Compares the counters in Redis with the ledger.
    #[command(after_help = RECONCILE_EXAMPLES)]
    Reconcile(Box<ReconcileArgs>),
}

#[derive(Args, Debug)]
pub(crate) struct DatabaseArgs {
    /// The ledger, where durable rules are written: sqlite:path or postgres://user:password@host/database.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "DATABASE_URL",
        hide_env_values = true
    )]
    database: Option<String>,
}

#[derive(Args, Debug)]
struct RowArgs {
    /// Only windows of this month, year or day: 2026-07, 2026, 2026-07-31.
    #[arg(long, visible_alias = "period", value_name = "PERIOD")]
    month: Option<Period>,

    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Args, Debug)]
pub(crate) struct StatementArgs {
    /// The account, as the service calls it.
    account: String,

    /// Only this rule.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Args, Debug)]
pub(crate) struct UsageArgs {
    /// Only this account.
    account: Option<String>,

    /// By day, of rules with daily usage: requests that were allowed and denied, and units.
    #[arg(long)]
    daily: bool,

    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Args, Debug)]
pub(crate) struct AdjustArgs {
    /// The account, as the service calls it.
    account: String,
    /// The rule.
    rule: String,
    /// The units that count as used; negative ones are given back.
    #[arg(allow_hyphen_values = true)]
    units: i64,

    /// What it is known by: it is written once for each id.
    #[arg(long)]
    id: String,

    /// A time of the window, as 2026-07-15T12:00:00Z. Default: now.
    #[arg(long, value_name = "TIME")]
    at: Option<jiff::Timestamp>,

    #[command(flatten)]
    because: BecauseArgs,

    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ReconcileArgs {
    /// Counters to read in a second, at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 500)]
    per_second: u32,

    /// Sets counters that differ to what the ledger has.
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    states: StateArgs,
}

impl DatabaseArgs {
    /// A ledger that there is: a file whose name is mistyped would be an empty one.
    async fn open(&self) -> Result<Ledger, Failure> {
        let database = self
            .database
            .as_deref()
            .ok_or_else(|| Failure::usage("which ledger? Name it by --database or DATABASE_URL"))?;
        let of_sqlite = database.strip_prefix("sqlite:").unwrap_or_default();
        let path = of_sqlite.strip_prefix("//").unwrap_or(of_sqlite);
        let file = path.split_once('?').map_or(path, |(file, _)| file);
        // Codes, and what is no file, are read by the ledger.
        let is_file = !file.is_empty() && !file.contains(['%', ':']);
        if is_file && !Path::new(file).exists() {
            return Err(Failure::failed(format!(
                "{file}: there is no such file; name the one that your service writes its ledger to"
            )));
        }
        Ok(Ledger::open(database).await?)
    }

    /// The ledger of rules that count a client. `None`: none of them is durable.
    pub(crate) async fn of_rules(&self, rules: &[Explanation]) -> Result<Option<Ledger>, Failure> {
        let is_durable = |it: &&Explanation| it.counts() && it.limiter_rule.is_durable();
        match rules.iter().find(is_durable) {
            None => Ok(None),
            Some(rule) if self.database.is_none() => Err(Failure::usage(format!(
                "{}: the rule is durable, and its ledger would not know of this; set DATABASE_URL",
                rule.rule
            ))),
            Some(_) => Ok(Some(self.open().await?)),
        }
    }
}

impl From<LedgerError> for Failure {
    fn from(wrong: LedgerError) -> Self {
        match wrong.kind() {
            LedgerErrorKind::Setup | LedgerErrorKind::Conflict => Self::usage(wrong.to_string()),
            _ => Self::failed(wrong),
        }
    }
}

pub(crate) async fn run(command: LedgerCommand, json: bool) -> Result<Report, Failure> {
    match command {
        LedgerCommand::Statement(args) => {
            let ledger = args.rows.database.open().await?;
            let mut rows = Rows::begin::<Entry>(json);
            let period = args.rows.month.unwrap_or(Period::ALL);
            let each = |entry: &Entry| rows.row(entry);
            let rule = args.rule.as_deref();
            ledger.statement(&args.account, rule, period, each).await?;
            rows.end()
        }
        LedgerCommand::Usage(args) => {
            let ledger = args.rows.database.open().await?;
            let account = args.account.as_deref();
            let period = args.rows.month.unwrap_or(Period::ALL);
            if args.daily {
                let mut rows = Rows::begin::<DailyUsage>(json);
                let each = |usage: &DailyUsage| rows.row(usage);
                ledger.daily_usage(account, period, each).await?;
                return rows.end();
            }
            let mut rows = Rows::begin::<AccountUsage>(json);
            let each = |usage: &AccountUsage| rows.row(usage);
            ledger.usage(account, period, each).await?;
            rows.end()
        }
        LedgerCommand::Adjust(args) => adjust(&args).await,
        LedgerCommand::Reconcile(args) => reconcile(&args).await,
    }
}

async fn adjust(args: &AdjustArgs) -> Result<Report, Failure> {
    let ledger = args.database.open().await?;
    let author = args.because.author()?;
    let at = args.at.map(|at| Tick::try_from(at.as_microsecond()));
    let adjustment = Adjustment {
        account: &args.account,
        rule: &args.rule,
        units: args.units,
        id: &args.id,
        actor: author.actor(),
        reason: &args.because.because,
        at: at
            .transpose()
            .map_err(|_| Failure::usage("--at: a time since 1970"))?,
    };
    let is_new = ledger.adjust(&adjustment, None).await?;
    let text = match is_new {
        true => {
            "written; `tollgate ledger reconcile --repair` tells the counter, best while the key rests"
        }
        false => "it was written before",
    };
    let json = json!({ "written": is_new });
    Ok(Report::new(text, json, is_new))
}

async fn reconcile(args: &ReconcileArgs) -> Result<Report, Failure> {
    let ledger = args.database.open().await?;
    let document = args.states.document().await?;
    let StateArgs { redis, keys, .. } = &args.states;
    let partition = keys.one_partition(redis)?;
    // A first write is refused to a user without rights, who would read no counter either.
    let store = redis.store(keys, partition, true).await?;
    let rules = document.limiter_rules().into_iter();
    // Whatever processes decide by themselves, this one asks Redis.
    let exact = rules.map(|rule| rule.consistency(Consistency::Exact));
    let limiter = Limiter::new(store.clone(), exact).map_err(Failure::failed)?;
    let how = Reconciliation {
        per_second: args.per_second,
        repairs: args.repair,
        ..Reconciliation::default()
    };
    let mut table = Table::new("account | rule | ledger | counter");
    let (mut drifts, mut settable) = (Vec::new(), 0);
    let each = |drift: &Drift| {
        let of = if drift.is_balance { "credits of " } else { "" };
        let left = match drift.is_shared {
            true => " (left: of several keys)",
            false => "",
        };
        settable += usize::from(!drift.is_shared);
        table.row([
            report::line(&drift.account, 60),
            format!("{of}{}{left}", drift.rule),
            drift.written.to_string(),
            drift.counted.to_string(),
        ]);
        drifts.push(json!({
            "account": drift.account,
            "rule": drift.rule,
            "is_balance": drift.is_balance,
            "is_shared": drift.is_shared,
            "repaired": args.repair && !drift.is_shared,
            "ledger": drift.written,
            "counter": drift.counted,
        }));
        ControlFlow::Continue(())
    };
    let compared = ledger.reconcile(&limiter, how, each).await?;
    // What it repairs is sent behind it.
    store.flush(Duration::from_secs(10)).await;
    let is_same = drifts.is_empty();
    let said = match args.repair {
        _ if settable == 0 => "none can be set: give each key an account of its own",
        true => "set to what the ledger has, but for what is left and their use meanwhile",
        false => "--repair sets them to what the ledger has, but for their use meanwhile",
    };
    let text = match drifts.len() {
        0 => format!(
            "{compared} counters differ from the ledger by no more than their use meanwhile"
        ),
        differ => format!(
            "{}\n{differ} of {compared} counters differ; {said}",
            table.text()
        ),
    };
    let is_repaired = args.repair && settable == drifts.len();
    let json = json!({ "compared": compared, "differ": drifts });
    Ok(Report::new(text, json, is_same || is_repaired))
}

/// Rows that are printed as they come.
struct Rows {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
    /// A terminal would obey what a row may have.
    is_terminal: bool,
    are_any: bool,
    wrong: io::Result<()>,
}

impl Rows {
    fn begin<R: ReportRow>(json: bool) -> Self {
        let mut out = BufWriter::new(io::stdout().lock());
        let wrong = match json {
            true => write!(out, "["),
            false => write!(out, "{}\r\n", R::COLUMNS),
        };
        Self {
            is_terminal: out.get_ref().is_terminal(),
            out,
            json,
            are_any: false,
            wrong,
        }
    }

    fn row<R: ReportRow>(&mut self, row: &R) -> ControlFlow<()> {
        self.wrong = if self.json {
            let separator = if self.are_any { ",\n" } else { "\n" };
            write!(self.out, "{separator}{}", ascii(&row.json().to_string()))
        } else if self.is_terminal {
            writeln!(self.out, "{}", report::line(&row.csv(), 2_000))
        } else {
            write!(self.out, "{}\r\n", row.csv())
        };
        self.are_any = true;
        match self.wrong {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    fn end(mut self) -> Result<Report, Failure> {
        if self.json {
            self.wrong = self.wrong.and_then(|()| writeln!(self.out, "\n]"));
        }
        match self.wrong.and_then(|()| self.out.flush()) {
            // Who reads has seen enough.
            Err(wrong) if wrong.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(wrong)),
            _ => Ok(Report::new("", json!(null), self.are_any)),
        }
    }
}
