//! What a ledger has to say: statements and usage, row by row.

use std::{collections::HashMap, fmt::Write as _, ops::ControlFlow, sync::Arc};

use serde_json::{Map, Value, json};
use sqlx::{
    Any, Row as _,
    any::{AnyArguments, AnyRow},
    query::Query,
};
use tokio_stream::StreamExt as _;
use tollgate_core::{
    Tick,
    journal::{DailyUsage, Window},
};

use crate::{
    database::window_of,
    error::LedgerError,
    ledger::Ledger,
    period::{CLOSES_AFTER, Period, day_text, time_text},
    writer::name_of,
};

/// An entry of a [statement](Ledger::statement).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// `usage`, `correction`, `adjustment`, `settlement`, `release`; of a balance `grant`, `revoke`, `credits`, `lapse`; and
    /// `reservation`, which is in no sum.
    pub kind: String,
    /// The rule.
    pub rule: String,
    /// When its window begins and ends, in µs since the epoch.
    pub window: Window,
    /// When it was written.
    pub at: Tick,
    /// The units: negative if they came back.
    pub units: i64,
    /// The units of the rule and window up to here; of a balance, what these entries have left of it.
    pub sum: i64,
    /// Until when a grant may be used, or units are reserved, in µs since the epoch.
    pub until: Option<Tick>,
    /// The id of an adjustment, a grant or a reservation.
    pub id: Option<String>,
    /// Who adjusted.
    pub actor: Option<String>,
    /// And why.
    pub reason: Option<String>,
}

/// What an account has used of a rule in a window: see [`Ledger::usage`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountUsage {
    /// The account.
    pub account: String,
    /// The rule.
    pub rule: String,
    /// When the window begins and ends, in µs since the epoch.
    pub window: Window,
    /// The units that were written until the window was closed, ten minutes after its end.
    pub units: i64,
    /// The sum of what was written later.
    pub corrections: i64,
    /// What was paid from the balance instead.
    pub credits: i64,
    /// Whether the window is closed: `units` do not change any more.
    pub is_closed: bool,
}

impl Ledger {
    /// Tells `each` the entries of an account, in the order in which they were written, of the windows of a period and of one rule or
    /// all. It holds one entry at a time, and a sum for each window.
    ///
    /// # Errors
    ///
    /// The database does not answer.
    pub async fn statement(
        &self,
        account: &str,
        rule: Option<&str>,
        period: Period,
        each: impl FnMut(&Entry) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        // An entry is not written before its window begins, and no window is longer than a year.
        let earliest = period.from.saturating_sub(367 * 86_400_000_000);
        let sql = "SELECT kind, rule, window_begin, window_end, at, units, until, id, actor, reason FROM tollgate_entries
            WHERE account = $1 AND at >= $2 AND ($3 = '' OR rule = $3)
                AND window_begin + window_end >= $4 AND window_begin + window_end < $5
            ORDER BY account, at, writer, n";
        let query = sqlx::query(sql)
            .bind(name_of(account))
            .bind(earliest as i64)
            .bind(rule.unwrap_or_default())
            .bind(2 * period.from as i64)
            .bind(2 * period.to as i64);
        // That of a balance is of no window.
        let mut sums: HashMap<(Arc<str>, Option<Window>), i64> = HashMap::new();
        let entry = |row: &AnyRow| {
            let window = window_of(row)?;
            let (rule, kind): (String, String) = (row.try_get("rule")?, row.try_get("kind")?);
            let units: i64 = row.try_get("units")?;
            let is_of_balance = ["grant", "revoke", "credits", "lapse"].contains(&&*kind);
            let of = (!is_of_balance).then_some(window);
            let sum = sums.entry((rule.as_str().into(), of)).or_default();
            if kind != "reservation" {
                *sum = sum.saturating_add(units);
            }
            Ok(Entry {
                kind,
                rule,
                window,
                at: row.try_get::<i64, _>("at")? as Tick,
                units,
                sum: *sum,
                until: row.try_get::<Option<i64>, _>("until")?.map(|it| it as Tick),
                id: row.try_get("id")?,
                actor: row.try_get("actor")?,
                reason: row.try_get("reason")?,
            })
        };
        self.each_row(query, entry, each).await
    }

    /// Tells `each` what accounts have used in the windows of a period, by account, rule and window: of one account, or of all.
    ///
    /// # Errors
    ///
    /// The database does not answer.
    pub async fn usage(
        &self,
        account: Option<&str>,
        period: Period,
        each: impl FnMut(&AccountUsage) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        let now = self.shared.database.dialect.now();
        let sql = format!(
            "SELECT account, rule, window_begin, window_end, units, late, credits, {now} AS now FROM tollgate_totals
            WHERE ($1 = '' OR account = $1) AND window_begin + window_end >= $2 AND window_begin + window_end < $3
            ORDER BY account, rule, window_end, window_begin"
        );
        let query = sqlx::query(&sql)
            .bind(account.map(name_of).unwrap_or_default())
            .bind(2 * period.from as i64)
            .bind(2 * period.to as i64);
        let usage = |row: &AnyRow| {
            let window = window_of(row)?;
            let now = row.try_get::<i64, _>("now")? as Tick;
            Ok(AccountUsage {
                account: row.try_get("account")?,
                rule: row.try_get("rule")?,
                window,
                units: row.try_get("units")?,
                corrections: row.try_get("late")?,
                credits: row.try_get("credits")?,
                // A transaction that began before may still be under way, for as long as one may take.
                is_closed: now >= window.end + CLOSES_AFTER + 60_000_000,
            })
        };
        self.each_row(query, usage, each).await
    }

    /// Tells `each` what the accounts of rules with [daily usage](tollgate_core::Rule::daily_usage) have used on the days of a period, by
    /// account, rule and day: of one account, or of all.
    ///
    /// # Errors
    ///
    /// The database does not answer.
    pub async fn daily_usage(
        &self,
        account: Option<&str>,
        period: Period,
        each: impl FnMut(&DailyUsage) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        let sql = "SELECT account, rule, day, allowed, denied, units FROM tollgate_daily_usage
            WHERE ($1 = '' OR account = $1) AND day >= $2 AND day < $3 ORDER BY account, rule, day";
        let query = sqlx::query(sql)
            .bind(account.map(name_of).unwrap_or_default())
            .bind(day_text(period.from))
            .bind(day_text(period.to));
        let usage = |row: &AnyRow| {
            let text = |column| row.try_get::<String, _>(column);
            let count = |column| row.try_get::<i64, _>(column);
            Ok(DailyUsage {
                account: text("account")?.into(),
                rule: text("rule")?.into(),
                day: text("day")?.parse::<Period>()?.from,
                allowed: count("allowed")? as u64,
                denied: count("denied")? as u64,
                units: count("units")?,
            })
        };
        self.each_row(query, usage, each).await
    }

    async fn each_row<'a, R>(
        &self,
        query: Query<'a, Any, AnyArguments<'a>>,
        mut read: impl FnMut(&AnyRow) -> Result<R, LedgerError>,
        mut each: impl FnMut(&R) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        let mut rows = query.fetch(&self.shared.database.pool);
        while let Some(row) = rows.next().await {
            if each(&read(&row?)?).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A row of a report, as text for other programs.
pub trait ReportRow {
    /// The names of its columns, as a line of CSV.
    const COLUMNS: &'static str;

    /// What is in them.
    fn values(&self) -> Vec<Value>;

    /// As an object.
    fn json(&self) -> Value {
        let columns = Self::COLUMNS.split(',').map(str::to_owned);
        let values = columns.zip(self.values());
        Value::Object(Map::from_iter(values))
    }

    /// As a line of RFC 4180, without its end. A text that a spreadsheet would take for a formula has a `'` in front.
    fn csv(&self) -> String {
        let mut line = String::new();
        for (index, value) in self.values().iter().enumerate() {
            if index > 0 {
                line.push(',');
            }
            match value {
                Value::Null => {}
                Value::String(text) => {
                    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
                    let quote = if formula { "'" } else { "" };
                    let _ = write!(line, "\"{quote}{}\"", text.replace('"', "\"\""));
                }
                other => {
                    let _ = write!(line, "{other}");
                }
            }
        }
        line
    }
}

impl ReportRow for Entry {
    const COLUMNS: &'static str =
        "at,kind,rule,window_begin,window_end,units,sum,until,id,actor,reason";

    fn values(&self) -> Vec<Value> {
        vec![
            json!(time_text(self.at)),
            json!(self.kind),
            json!(self.rule),
            json!(time_text(self.window.begin)),
            json!(time_text(self.window.end)),
            json!(self.units),
            json!(self.sum),
            json!(self.until.map(time_text)),
            json!(self.id),
            json!(self.actor),
            json!(self.reason),
        ]
    }
}

impl ReportRow for DailyUsage {
    const COLUMNS: &'static str = "day,account,rule,allowed,denied,units";

    fn values(&self) -> Vec<Value> {
        vec![
            json!(day_text(self.day)),
            json!(&*self.account),
            json!(&*self.rule),
            json!(self.allowed),
            json!(self.denied),
            json!(self.units),
        ]
    }
}

impl ReportRow for AccountUsage {
    const COLUMNS: &'static str =
        "account,rule,window_begin,window_end,units,corrections,credits,closed";

    fn values(&self) -> Vec<Value> {
        vec![
            json!(self.account),
            json!(self.rule),
            json!(time_text(self.window.begin)),
            json!(time_text(self.window.end)),
            json!(self.units),
            json!(self.corrections),
            json!(self.credits),
            json!(self.is_closed),
        ]
    }
}
