//! What a process writes: batches of entries, each with a number of its own, so that writing one twice is harmless.

use std::collections::HashSet;

use sqlx::{AnyPool, Row as _};
use tokio::{task::JoinSet, time::Instant};
use tollgate_core::{Tick, journal::Usage, store::Fingerprint};

use crate::{
    counter::subject, database::Database, dialect::Dialect, error::LedgerError,
    movements::Movements,
};

/// The entries of a transaction.
const CHUNK: usize = 10_000;
/// The keys whose accounts this process knows to be written.
const KNOWN: usize = 1 << 20;
/// The longest name of an account, in bytes.
const LONGEST: usize = 200;

/// Entries that are written next, and their numbers. An entry keeps its number until the database has said that it is there: after an
/// unknown outcome it is written again, and found.
pub(crate) struct Batch {
    /// Of this process, by chance.
    writer: i64,
    /// The number of the first entry.
    first: i64,
    entries: Vec<Usage>,
    known: HashSet<u128>,
    pub(crate) movements: Movements,
    /// Everything from before then is written.
    pub(crate) complete_at: Option<Instant>,
    /// Since when each batch could be written.
    pub(crate) written_since: Option<Instant>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self {
            writer: fastrand::i64(1..),
            first: 0,
            entries: Vec::new(),
            known: HashSet::new(),
            movements: Movements::new(),
            complete_at: None,
            written_since: None,
        }
    }

    pub(crate) fn add(&mut self, usage: impl Iterator<Item = Usage>) {
        self.entries.extend(usage);
    }

    /// Writes all of it, in as many transactions as it takes: in Postgres, some at once.
    pub(crate) async fn write(&mut self, database: &Database) -> Result<(), LedgerError> {
        let at_once = match database.dialect {
            Dialect::Sqlite => 1,
            // The other connections are for requests that wait for a sum.
            Dialect::Postgres => database.connections.div_ceil(2) as usize,
        };
        while !self.entries.is_empty() {
            let mut transactions = JoinSet::new();
            let (mut first, mut new) = (self.first, HashSet::new());
            let written = self.entries.len().min(at_once * CHUNK);
            for entries in self.entries[..written].chunks(CHUNK) {
                let mut chunk = Chunk {
                    writer: self.writer,
                    first,
                    rows: Columns::new(database.dialect),
                    subjects: None,
                };
                for usage in entries {
                    let (rule, key) = (&usage.rule, usage.subject);
                    let account = database
                        .name_of(rule, key, usage.account.as_deref())
                        .await?;
                    let known = known(usage);
                    if !self.known.contains(&known) && usage.account.is_some() && new.insert(known)
                    {
                        let subjects = chunk
                            .subjects
                            .get_or_insert_with(|| Columns::new(database.dialect));
                        subjects.row(&[&usage.rule, &subject(usage.subject), &account], &[]);
                    }
                    // A time is below 2^53.
                    let (begin, end) = (usage.window.begin as i64, usage.window.end as i64);
                    chunk
                        .rows
                        .row(&[&usage.rule, &account], &[begin, end, usage.units]);
                }
                first += entries.len() as i64;
                transactions.spawn(chunk.insert(database.pool.clone()));
            }
            while let Some(inserted) = transactions.join_next().await {
                // After a panic, too.
                inserted.map_err(|_| sqlx::Error::WorkerCrashed)??;
            }
            if self.known.len() + new.len() > KNOWN {
                self.known.clear();
            }
            self.known.extend(new);
            self.entries.drain(..written);
            self.first = first;
            #[cfg(feature = "metrics")]
            metrics::counter!("tollgate_ledger_entries_total").increment(written as u64);
        }
        Ok(())
    }
}

/// The entries of a transaction. All lock accounts in the same order.
struct Chunk {
    writer: i64,
    /// The number of the first entry.
    first: i64,
    rows: Columns,
    /// Keys whose accounts may not be written.
    subjects: Option<Columns>,
}

impl Chunk {
    async fn insert(self, pool: AnyPool) -> Result<(), sqlx::Error> {
        let dialect = self.rows.dialect;
        let mut transaction = pool.begin_with(dialect.begin()).await?;
        if let Some(subjects) = self.subjects {
            let sql = insert_subjects(dialect);
            let mut query = sqlx::query(&sql);
            for column in subjects.texts() {
                query = query.bind(column);
            }
            query.execute(&mut *transaction).await?;
        }
        let sql = insert_entries(dialect);
        let mut query = sqlx::query(&sql).bind(self.writer).bind(self.first);
        for column in self.rows.texts() {
            query = query.bind(column);
        }
        query.execute(&mut *transaction).await?;
        transaction.commit().await
    }
}

/// What stands for a rule's key.
fn known(usage: &Usage) -> u128 {
    // FNV-1a of the rule: in memory, one key is the same under each.
    let rule = usage
        .rule
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    usage.subject.bits() ^ u128::from(rule)
}

/// The name of an account as it is written: without what separates columns, or breaks a line.
pub(crate) fn name_of(account: &str) -> String {
    let mut end = account.len().min(LONGEST);
    while !account.is_char_boundary(end) {
        end -= 1;
    }
    account[..end].replace(|c: char| c.is_control(), "?")
}

/// Rows for one statement: of SQLite as JSON, of Postgres a text for each column. Both take them apart faster than they read as many
/// parameters.
struct Columns {
    dialect: Dialect,
    columns: Vec<String>,
}

impl Columns {
    fn new(dialect: Dialect) -> Self {
        let columns = Vec::new();
        Self { dialect, columns }
    }

    fn row(&mut self, texts: &[&str], numbers: &[i64]) {
        match self.dialect {
            Dialect::Sqlite => {
                let mut row: Vec<serde_json::Value> = texts.iter().map(|it| (*it).into()).collect();
                row.extend(numbers.iter().map(|it| serde_json::Value::from(*it)));
                self.columns.resize(1, String::new());
                let separator = if self.columns[0].is_empty() { '[' } else { ',' };
                self.columns[0].push(separator);
                self.columns[0] += &serde_json::Value::from(row).to_string();
            }
            Dialect::Postgres => {
                self.columns
                    .resize(texts.len() + numbers.len(), String::new());
                let (of_texts, of_numbers) = self.columns.split_at_mut(texts.len());
                for (column, text) in of_texts.iter_mut().zip(texts) {
                    column.push_str(text);
                    column.push('\u{1f}');
                }
                for (column, number) in of_numbers.iter_mut().zip(numbers) {
                    column.push_str(&number.to_string());
                    column.push(',');
                }
            }
        }
    }

    fn texts(mut self) -> Vec<String> {
        for column in &mut self.columns {
            match self.dialect {
                Dialect::Sqlite => column.push(']'),
                Dialect::Postgres => drop(column.pop()),
            }
        }
        self.columns
    }
}

fn insert_subjects(dialect: Dialect) -> String {
    let rows = match dialect {
        Dialect::Sqlite => {
            "SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1) WHERE true"
        }
        Dialect::Postgres => {
            "SELECT * FROM unnest(string_to_array($1, E'\\x1f'), string_to_array($2, E'\\x1f'),
                string_to_array($3, E'\\x1f')) AS u (rule, subject, account) ORDER BY rule, subject"
        }
    };
    format!(
        "INSERT INTO tollgate_subjects (rule, subject, account) {rows} ON CONFLICT (rule, subject) DO UPDATE
            SET account = excluded.account WHERE tollgate_subjects.account <> excluded.account"
    )
}

/// Entries whose number is there are left alone, and so are their sums.
fn insert_entries(dialect: Dialect) -> String {
    let rows = match dialect {
        Dialect::Sqlite => {
            "SELECT key AS i, value ->> 0 AS rule, value ->> 1 AS account, value ->> 2 AS window_begin,
                value ->> 3 AS window_end, value ->> 4 AS units FROM json_each($3)"
        }
        Dialect::Postgres => {
            "SELECT i - 1 AS i, rule, account, window_begin, window_end, units FROM unnest(
                string_to_array($3, E'\\x1f'), string_to_array($4, E'\\x1f'), string_to_array($5, ',')::bigint[],
                string_to_array($6, ',')::bigint[], string_to_array($7, ',')::bigint[]
            ) WITH ORDINALITY AS u (rule, account, window_begin, window_end, units, i)"
        }
    };
    let now = dialect.now();
    format!(
        "INSERT INTO tollgate_entries (writer, n, kind, rule, account, window_begin, window_end, units, at)
        SELECT $1, $2 + i, CASE WHEN now.at < window_end + 600000000 THEN 'usage' ELSE 'correction' END,
            rule, account, window_begin, window_end, units, now.at
        FROM ({rows}) AS entries, (SELECT {now} AS at) AS now WHERE true
        ON CONFLICT DO NOTHING"
    )
}

impl Database {
    /// The account of a key that this process does not know.
    pub(crate) async fn account_of(
        &self,
        rule: &str,
        key: Fingerprint,
    ) -> Result<Option<String>, LedgerError> {
        let sql = "SELECT account FROM tollgate_subjects WHERE rule = $1 AND subject = $2";
        let query = sqlx::query(sql).bind(rule).bind(subject(key));
        let row = query.fetch_optional(&self.pool).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// How an account is called, as far as anybody knows.
    pub(crate) async fn name_of(
        &self,
        rule: &str,
        key: Fingerprint,
        account: Option<&str>,
    ) -> Result<String, LedgerError> {
        if let Some(account) = account {
            return Ok(name_of(account));
        }
        // A settlement long after its request.
        let found = self.account_of(rule, key).await?;
        Ok(found.unwrap_or_else(|| format!("?{}", subject(key))))
    }

    /// What an account has used in the window that ends then.
    pub(crate) async fn sum(
        &self,
        rule: &str,
        account: &str,
        window_end: Tick,
    ) -> Result<i64, LedgerError> {
        let sql = "SELECT CAST(COALESCE(SUM(units + late), 0) AS BIGINT) FROM tollgate_totals
            WHERE account = $1 AND rule = $2 AND window_end = $3";
        let query = sqlx::query(sql).bind(account).bind(rule);
        let row = query.bind(window_end as i64).fetch_one(&self.pool).await?;
        Ok(row.try_get(0)?)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::journal::Window;
    use tollgate_test_servers::postgres_server::PostgresServer;

    use super::*;

    #[tokio::test]
    async fn a_batch_that_is_sent_twice_is_written_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = PostgresServer::start().await;
        let file = format!("sqlite:{}/ledger.db", folder.path().display());
        for url in [file, server.url()] {
            let database = Database::open(&url, 2, None).await.expect("it opens");
            let mut batch = Batch::new();
            let window = Window {
                begin: 0,
                end: 1 << 52,
            };
            let usage = |account: Option<&str>, units| Usage {
                rule: "units".into(),
                subject: Fingerprint::from_bits(7),
                account: account.map(Into::into),
                window,
                units,
            };
            let entries = [usage(Some("acme, \"inc\" {}"), 30), usage(Some("bolt"), 5)];
            for _ in 0..2 {
                // Its reply was lost.
                batch.first = 0;
                batch.add(entries.iter().cloned());
                batch.write(&database).await.expect("it writes");
            }
            let sum = async |account| {
                let sum = database.sum("units", account, window.end).await;
                sum.expect("it answers")
            };
            assert_eq!((sum("acme, \"inc\" {}").await, sum("bolt").await), (30, 5));
            // A settlement whose request was long ago, in this process or another one.
            batch.add([usage(None, -3)].into_iter());
            let mut other = Batch::new();
            other.add([usage(Some("bolt"), 1)].into_iter());
            let (one, two) = tokio::join!(batch.write(&database), other.write(&database));
            one.and(two).expect("they write");
            let sums = sum("acme, \"inc\" {}").await + sum("bolt").await;
            assert_eq!(sums, 33);
        }
    }
}
