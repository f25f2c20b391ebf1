//! What is written besides usage: balances, reservations, and sums by client and day.
//!
//! A balance is the sum of its entries. What is left of it at its end lapses with the next grant. A reservation that is open after its
//! term is released by the process that is first to write so; a settlement that comes later is not written.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use sqlx::Row as _;
use tokio::time::Instant;
use tollgate_core::{
    Tick,
    journal::{BaseQuery, CreditEntry, DailyUsage, Journal, MovementKind, Usage, Window},
    store::{CreditChange, CreditState, MOST_GRANTS, RuleStore, grant_hash},
};

use crate::{
    counter::{hold_of, key_of, subject},
    database::{Database, Outbox, window_of},
    error::LedgerError,
    period::day_text,
    schema::MOST_UNITS,
    writer::name_of,
};

/// The entries of a transaction.
const CHUNK: usize = 1_000;
const INSERT: &str = "INSERT INTO tollgate_entries
    (writer, n, kind, rule, account, window_begin, window_end, units, at, id, until)";

impl Outbox<(Usage, MovementKind)> {
    pub(crate) async fn write(&mut self, database: &Database) -> Result<(), LedgerError> {
        while !self.waiting.is_empty() {
            let chunk = &self.waiting[..self.waiting.len().min(CHUNK)];
            let mut entries = Vec::new();
            let keys = chunk
                .iter()
                .map(|(it, _)| (&it.rule, it.subject, it.account.as_ref()));
            let names = database.names(keys).await?;
            for (i, ((usage, kind), account)) in chunk.iter().zip(names).enumerate() {
                let (kind, hold, term) = match *kind {
                    MovementKind::Credits => ("credits", None, None),
                    MovementKind::Reserved(hold, term) => ("reservation", Some(hold), Some(term)),
                    MovementKind::Settled(hold) => ("settlement", Some(hold), None),
                };
                let id = hold.map(|(id, index)| format!("{id:032x}-{index}"));
                let term = term.map(|it| u64::try_from(it.as_micros()).unwrap_or(0));
                let Window { begin, end } = usage.window;
                let units = usage.units;
                let (rule, subject) = (&*usage.rule, subject(usage.subject));
                entries.push(json!([
                    i, kind, rule, subject, account, begin, end, units, id, term
                ]));
            }
            let (written, entries) = (chunk.len(), Value::from(entries).to_string());
            self.write_entries(database, &entries).await?;
            self.sent(written);
        }
        Ok(())
    }

    async fn write_entries(&self, database: &Database, entries: &str) -> Result<(), LedgerError> {
        let (rows, now) = (database.dialect.json_rows(), database.dialect.now());
        let rows = format!(
            "(SELECT CAST(value ->> 0 AS BIGINT) AS i, value ->> 1 AS kind, value ->> 2 AS rule, value ->> 3 AS subject,
                value ->> 4 AS account, CAST(value ->> 5 AS BIGINT) AS window_begin, CAST(value ->> 6 AS BIGINT) AS window_end,
                CAST(value ->> 7 AS BIGINT) AS units, value ->> 8 AS id, CAST(value ->> 9 AS BIGINT) AS term
            FROM {rows}) AS r"
        );
        let mut transaction = database.pool.begin_with(database.dialect.begin()).await?;
        let sql = format!(
            "{INSERT} SELECT $2, $3 + i, kind, rule, account, window_begin, window_end, units, now.at, id, now.at + term
            FROM {rows}, (SELECT {now} AS at) AS now WHERE true ON CONFLICT DO NOTHING"
        );
        let query = sqlx::query(&sql).bind(entries).bind(self.writer);
        query.bind(self.first).execute(&mut *transaction).await?;
        for sql in [
            format!(
                "INSERT INTO tollgate_reservations
                SELECT id, rule, subject, account, window_begin, window_end, units, {now} + MAX(term)
                FROM {rows} WHERE term IS NOT NULL GROUP BY id, rule, subject, account, window_begin, window_end, units
                ON CONFLICT (id) DO UPDATE SET until = excluded.until WHERE excluded.until > tollgate_reservations.until"
            ),
            format!(
                "DELETE FROM tollgate_reservations WHERE id IN (SELECT id FROM {rows} WHERE kind = 'settlement')"
            ),
        ] {
            let query = sqlx::query(&sql).bind(entries);
            query.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}

impl Database {
    /// Writes a grant or its end, once for its id.
    pub(crate) async fn change_credits(
        &self,
        query: &BaseQuery,
        account: &str,
        entry: &CreditEntry,
    ) -> Result<(), LedgerError> {
        let now = self.dialect.now();
        let mut transaction = self.pool.begin_with(self.dialect.begin()).await?;
        let (sql, row) = (
            self.dialect.insert_subjects(),
            json!([[&*query.rule, subject(query.subject), account]]),
        );
        let of_key = sqlx::query(&sql).bind(row.to_string());
        of_key.execute(&mut *transaction).await?;
        let (writer, Window { begin, end }) = (fastrand::i64(1..), query.window);
        let of_account = |sql| {
            let query = sqlx::query(sql).bind(writer).bind(&*query.rule);
            query.bind(account).bind(begin as i64).bind(end as i64)
        };
        match entry.change {
            CreditChange::Grant { units, until, .. } => {
                let lapse = format!(
                    "{INSERT} SELECT $1, 0, 'lapse', $2, $3, $4, $5, -units, {now}, CAST(until AS TEXT), until FROM tollgate_balances
                    WHERE rule = $2 AND account = $3 AND until <= {now} AND units <> 0 ON CONFLICT DO NOTHING"
                );
                of_account(&*lapse).execute(&mut *transaction).await?;
                // Repeated with another end, it is the same one, as in the store.
                let sql = format!(
                    "{INSERT} SELECT $1, 1, 'grant', $2, $3, $4, $5, $6, {now}, $7, $8 WHERE NOT EXISTS (SELECT 1 FROM tollgate_entries
                        WHERE rule = $2 AND account = $3 AND kind = 'grant' AND id = $7 AND until > {now}) ON CONFLICT DO NOTHING"
                );
                let grant = of_account(&*sql)
                    .bind(units as i64)
                    .bind(&*entry.id)
                    .bind(until as i64);
                grant.execute(&mut *transaction).await?;
            }
            CreditChange::Revoke { .. } => {
                // If the store was asked before, and its answer did not come: by what the ledger has left.
                let sql = format!(
                    "{INSERT} SELECT $1, 0, 'revoke', $2, $3, $4, $5, -CASE WHEN $6 > 0 THEN $6 WHEN b.units < 0 THEN 0
                        WHEN b.units < g.units THEN b.units ELSE g.units END, {now}, g.id, g.until
                    FROM tollgate_entries AS g JOIN tollgate_balances AS b ON b.rule = g.rule AND b.account = g.account
                    WHERE g.rule = $2 AND g.account = $3 AND g.kind = 'grant' AND g.id = $7
                    ORDER BY g.until DESC LIMIT 1 ON CONFLICT DO NOTHING"
                );
                let revoke = of_account(&*sql)
                    .bind(entry.changed as i64)
                    .bind(&*entry.id);
                revoke.execute(&mut *transaction).await?;
            }
            _ => {}
        }
        Ok(transaction.commit().await?)
    }

    /// The balance of an account.
    pub(crate) async fn credits(
        &self,
        rule: &str,
        account: &str,
    ) -> Result<CreditState, LedgerError> {
        let now = self.dialect.now();
        let sql = format!(
            "SELECT units, until FROM tollgate_balances WHERE rule = $1 AND account = $2 AND until > {now}"
        );
        let balance = sqlx::query_as::<_, (i64, i64)>(&sql)
            .bind(rule)
            .bind(account);
        let Some((units, until)) = balance.fetch_optional(&self.pool).await? else {
            return Ok(CreditState::default());
        };
        let sql = format!(
            "SELECT id, until, CASE WHEN EXISTS (SELECT 1 FROM tollgate_entries AS r WHERE r.account = g.account AND r.rule = g.rule
                AND r.kind = 'revoke' AND r.id = g.id AND r.until = g.until) THEN 0 ELSE units END AS units
            FROM tollgate_entries AS g WHERE rule = $1 AND account = $2 AND kind = 'grant' AND until > {now}
            ORDER BY until DESC LIMIT {MOST_GRANTS}"
        );
        let grants = sqlx::query_as::<_, (String, i64, i64)>(&sql)
            .bind(rule)
            .bind(account)
            .fetch_all(&self.pool)
            .await?
            .into_iter()
            .filter_map(|(id, until, units)| {
                Some((grant_hash(&id).ok()?, units as u64, until as Tick))
            });
        let units = u64::try_from(units).unwrap_or(0);
        Ok(CreditState::of_ledger(units, until as Tick, grants))
    }

    /// What an account has used in the last windows that were over at a time, the latest last.
    pub(crate) async fn earlier(
        &self,
        rule: &str,
        account: &str,
        at: Tick,
        most: u8,
    ) -> Result<Vec<(Window, i64)>, LedgerError> {
        let sql = "SELECT window_begin, window_end, units + late FROM tollgate_totals
            WHERE account = $1 AND rule = $2 AND window_end <= $3 ORDER BY window_end DESC LIMIT $4";
        let query = sqlx::query(sql).bind(account).bind(rule).bind(at as i64);
        let rows = query.bind(i64::from(most)).fetch_all(&self.pool).await?;
        let window = |row| Ok((window_of(row)?, row.try_get(2)?));
        rows.iter().rev().map(window).collect()
    }

    /// Releases the reservations of a rule that have been over for some time, in the ledger and then in the store. It takes no
    /// more of them up from `until` on: of one whose commit is cut, the store would never hear.
    pub(crate) async fn release(
        &self,
        store: &dyn RuleStore,
        rule: &str,
        after: Duration,
        until: Instant,
    ) -> Result<(), LedgerError> {
        let now = self.dialect.now();
        let sql = format!(
            "SELECT id, subject, window_begin, window_end, units, {now} AS now FROM tollgate_reservations
            WHERE rule = $1 AND until <= {now} - $2 ORDER BY until LIMIT 500"
        );
        let query = sqlx::query(&sql).bind(rule).bind(after.as_micros() as i64);
        for row in query.fetch_all(&self.pool).await? {
            if Instant::now() > until {
                break;
            }
            let id: String = row.try_get("id")?;
            let mut transaction = self.pool.begin_with(self.dialect.begin()).await?;
            let sql = format!(
                "{INSERT} SELECT $1, 0, 'release', rule, account, window_begin, window_end, -units, {now}, id, NULL
                FROM tollgate_reservations WHERE id = $2 ON CONFLICT DO NOTHING"
            );
            let query = sqlx::query(&sql).bind(fastrand::i64(1..)).bind(&id);
            let released = query.execute(&mut *transaction).await?.rows_affected();
            let query = sqlx::query("DELETE FROM tollgate_reservations WHERE id = $1").bind(&id);
            query.execute(&mut *transaction).await?;
            transaction.commit().await?;
            let (now, units): (i64, i64) = (row.try_get("now")?, row.try_get("units")?);
            let window = window_of(&row)?;
            if released > 0 && (now as Tick) < window.end {
                let key = key_of(row.try_get("subject")?);
                let hold = hold_of(store, rule, key, window, units as u64)?;
                let record = id.split_once('-').map_or(&*id, |(record, _)| record);
                store.release_reserved(u128::from_str_radix(record, 16).unwrap_or(0), &hold);
            }
        }
        Ok(())
    }
}

/// The rows of daily usage of a transaction.
const ROWS: usize = 10_000;

impl Outbox<DailyUsage> {
    /// Writes what waits, and then what these journals have.
    pub(crate) async fn write(
        &mut self,
        database: &Database,
        journals: &[Arc<Journal>],
    ) -> Result<(), LedgerError> {
        self.write_rows(database).await?;
        self.waiting = journals.iter().flat_map(|it| it.take_daily()).collect();
        self.write_rows(database).await
    }

    /// After an unknown outcome rows are sent again as they were, with the same number, and added once.
    async fn write_rows(&mut self, database: &Database) -> Result<(), LedgerError> {
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(ROWS);
            let rows = self.waiting[..count].iter().map(|it| {
                let (account, day) = (name_of(&it.account), day_text(it.day));
                // So that the database can add them up.
                let most = MOST_UNITS / ROWS as i64;
                let units = it.units.clamp(-most, most);
                json!([account, &*it.rule, day, it.allowed, it.denied, units])
            });
            self.add(database, &Value::from_iter(rows).to_string())
                .await?;
            self.sent(count);
        }
        Ok(())
    }

    async fn add(&self, database: &Database, rows: &str) -> Result<(), LedgerError> {
        let begin = database.dialect.begin();
        let mut transaction = database.pool.begin_with(begin).await?;
        let sql = "INSERT INTO tollgate_daily_batches VALUES ($1, $2) ON CONFLICT (writer) DO UPDATE SET n = excluded.n
            WHERE tollgate_daily_batches.n < excluded.n";
        let query = sqlx::query(sql).bind(self.writer).bind(self.first);
        if query.execute(&mut *transaction).await?.rows_affected() > 0 {
            // In order, so that no two wait for each other.
            let sql = format!(
                "INSERT INTO tollgate_daily_usage
                SELECT value ->> 0, value ->> 1, value ->> 2, SUM(CAST(value ->> 3 AS BIGINT)), SUM(CAST(value ->> 4 AS BIGINT)),
                    SUM(CAST(value ->> 5 AS BIGINT))
                FROM {} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
                ON CONFLICT (account, rule, day) DO UPDATE SET allowed = tollgate_daily_usage.allowed + excluded.allowed,
                    denied = tollgate_daily_usage.denied + excluded.denied, units = {}",
                database.dialect.json_rows(),
                database.dialect.bounded("tollgate_daily_usage.units + excluded.units")
            );
            let query = sqlx::query(&sql).bind(rows);
            query.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_batch_that_is_sent_twice_is_added_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let database = Database::open(&url, 1, None).await.expect("it opens");
        let mut batch = Outbox::default();
        let row = DailyUsage {
            account: "acme".into(),
            rule: "search".into(),
            day: 0,
            allowed: 2,
            denied: 1,
            units: 5,
        };
        for number in [0, 0, 1] {
            // Its reply was lost.
            batch.first = number;
            batch.waiting.push(row.clone());
            batch.write_rows(&database).await.expect("it writes");
        }
        let sums = async || {
            let sql = "SELECT allowed, denied, units FROM tollgate_daily_usage";
            let query = sqlx::query_as::<_, (i64, i64, i64)>(sql);
            query.fetch_all(&database.pool).await.expect("it answers")
        };
        assert_eq!(sums().await, [(4, 2, 10)]);
        // More than can be added up holds nothing up.
        let most = DailyUsage {
            units: i64::MAX,
            ..row
        };
        batch.waiting = vec![most; ROWS];
        batch.write_rows(&database).await.expect("it writes");
        assert_eq!(sums().await[0].2, MOST_UNITS);
    }
}
