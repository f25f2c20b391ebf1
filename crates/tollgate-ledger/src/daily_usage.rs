//! Usage by client and day: sums in one table, to which each process adds what it has counted.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_core::journal::{DailyUsage, Journal};

use crate::{
    database::{Database, Outbox},
    error::LedgerError,
    period::day_text,
    schema::MOST_UNITS,
    writer::name_of,
};

/// The rows of a transaction.
const CHUNK: usize = 10_000;

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
            let count = self.waiting.len().min(CHUNK);
            let rows = self.waiting[..count].iter().map(|it| {
                let (account, day) = (name_of(&it.account), day_text(it.day));
                // So that the database can add them up.
                let most = MOST_UNITS / CHUNK as i64;
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
        batch.waiting = vec![most; CHUNK];
        batch.write_rows(&database).await.expect("it writes");
        assert_eq!(sums().await[0].2, MOST_UNITS);
    }
}
