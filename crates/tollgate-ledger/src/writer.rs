//! What a process writes: batches of entries, each with a number of its own, so that writing one twice is harmless.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::Arc,
};

use serde_json::{Value, json};
use sqlx::{AnyPool, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{task::JoinSet, time::Instant};
use tollgate_core::{
    FNV, Tick, fnv,
    journal::{MovementKind, Usage},
    store::Fingerprint,
};

use crate::{
    counter::{key_of, subject},
    database::{Database, Outbox},
    error::LedgerError,
    period::CLOSES_AFTER,
    schema::Dialect,
};

/// The entries of a transaction.
const CHUNK: usize = 10_000;
/// The keys whose accounts this process knows to be written.
const KNOWN: usize = 1 << 20;
/// The longest name of an account, in bytes.
const LONGEST: usize = 200;

/// Entries that are written next: after an unknown outcome again, in the same transaction with the same others.
#[derive(Default)]
pub(crate) struct Batch {
    entries: Outbox<Usage>,
    known: HashSet<u128>,
    /// Those to Postgres that wait for the next entries. One whose transaction has not ended well is closed: it may be in the middle of a
    /// `COPY`.
    idle: Vec<PgConnection>,
    pub(crate) movements: Outbox<(Usage, MovementKind)>,
    /// Everything from before then is written.
    pub(crate) complete_at: Option<Instant>,
    /// Since when each batch could be written.
    pub(crate) written_since: Option<Instant>,
}

impl Batch {
    pub(crate) fn add(&mut self, usage: impl Iterator<Item = Usage>) {
        let entries = &mut self.entries.waiting;
        entries.extend(usage);
        // As the database orders them: neighbours in its tables are written together, and it has nothing to sort.
        let order = |it: &Usage| (it.window.end, it.window.begin);
        entries.sort_unstable_by(|one, other| {
            let accounts = (&one.account, &one.rule).cmp(&(&other.account, &other.rule));
            accounts.then_with(|| order(one).cmp(&order(other)))
        });
    }

    /// Writes all of it, in as many transactions as it takes: in Postgres, some at once.
    pub(crate) async fn write(&mut self, database: &Database) -> Result<(), LedgerError> {
        while !self.entries.waiting.is_empty() {
            let mut transactions = JoinSet::new();
            let (mut first, mut new) = (self.entries.first, HashSet::new());
            let waiting = &self.entries.waiting;
            let written = waiting.len().min(database.writers * CHUNK);
            let keys = waiting[..written]
                .iter()
                .map(|it| (&it.rule, it.subject, it.account.as_ref()));
            let mut names = database.names(keys).await?.into_iter();
            for entries in waiting[..written].chunks(CHUNK) {
                let mut chunk = Chunk {
                    writer: self.entries.writer,
                    first,
                    entries: Vec::with_capacity(entries.len()),
                    subjects: Vec::new(),
                };
                for (usage, account) in entries.iter().zip(names.by_ref()) {
                    let known = known(usage);
                    if usage.account.is_some() && !self.known.contains(&known) && new.insert(known)
                    {
                        let row = json!([&*usage.rule, subject(usage.subject), account]);
                        chunk.subjects.push(row);
                    }
                    chunk.entries.push((usage.clone(), account));
                }
                first += entries.len() as i64;
                match &database.postgres {
                    Some(options) => {
                        transactions.spawn(chunk.copy(self.idle.pop(), options.clone()))
                    }
                    None => transactions.spawn(chunk.insert(database.pool.clone())),
                };
            }
            while let Some(inserted) = transactions.join_next().await {
                // After a panic, too.
                let idle = inserted.map_err(|_| sqlx::Error::WorkerCrashed)??;
                self.idle.extend(idle);
            }
            if self.known.len() + new.len() > KNOWN {
                self.known.clear();
            }
            self.known.extend(new);
            self.entries.sent(written);
            #[cfg(feature = "metrics")]
            metrics::counter!("tollgate_ledger_entries_total").increment(written as u64);
        }
        Ok(())
    }
}

/// The entries of a transaction, with the names of their accounts. All lock accounts in the same order.
struct Chunk {
    writer: i64,
    /// The number of the first entry.
    first: i64,
    entries: Vec<(Usage, String)>,
    /// Keys whose accounts may not be written: of each its rule, what stands for it, and the account.
    subjects: Vec<Value>,
}

impl Chunk {
    /// In SQLite. It takes JSON apart faster than it reads as many parameters. Entries whose number is there are left alone, and so are
    /// their sums.
    async fn insert(mut self, pool: AnyPool) -> Result<Option<PgConnection>, sqlx::Error> {
        let mut transaction = pool.begin_with(Dialect::Sqlite.begin()).await?;
        if !self.subjects.is_empty() {
            let sql = Dialect::Sqlite.insert_subjects();
            let rows = Value::from(mem::take(&mut self.subjects));
            let query = sqlx::query(&sql).bind(rows.to_string());
            query.execute(&mut *transaction).await?;
        }
        let rows = self.entries.iter().map(|(usage, account)| {
            let window = usage.window;
            json!([&*usage.rule, account, window.begin, window.end, usage.units])
        });
        let sql = format!(
            "INSERT INTO tollgate_entries (writer, n, kind, rule, account, window_begin, window_end, units, at)
            SELECT $1, $2 + key, CASE WHEN now.at < value ->> 3 + {CLOSES_AFTER} THEN 'usage' ELSE 'correction' END,
                value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, now.at
            FROM json_each($3), (SELECT {} AS at) AS now WHERE true ON CONFLICT DO NOTHING",
            Dialect::Sqlite.now()
        );
        let query = sqlx::query(&sql)
            .bind(self.writer)
            .bind(self.first)
            .bind(Value::from_iter(rows).to_string());
        query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(None)
    }

    /// In Postgres. The first entry that is there ends the `COPY`, and then all of them are there.
    async fn copy(
        mut self,
        mut idle: Option<PgConnection>,
        options: PgConnectOptions,
    ) -> Result<Option<PgConnection>, sqlx::Error> {
        if let Some(connection) = &mut idle
            && connection.ping().await.is_err()
        {
            idle = None;
        }
        let mut connection = match idle {
            Some(idle) => idle,
            None => PgConnection::connect_with(&options).await?,
        };
        let mut transaction = connection.begin().await?;
        if !self.subjects.is_empty() {
            let sql = Dialect::Postgres.insert_subjects();
            let rows = Value::from(mem::take(&mut self.subjects));
            let query = sqlx::query(&sql).bind(rows.to_string());
            query.execute(&mut *transaction).await?;
        }
        let sql = format!("SELECT {}", Dialect::Postgres.now());
        let at = sqlx::query_scalar(&sql)
            .fetch_one(&mut *transaction)
            .await?;
        // Not a statement with parameters: where Postgres logs those that are slow, it logs these too, and so everybody's accounts. What a
        // binary COPY sends is in no log.
        let sql = "COPY tollgate_entries (writer, n, kind, rule, account, window_begin, window_end, units, at)
            FROM STDIN (FORMAT binary)";
        let mut copy = transaction.copy_in_raw(sql).await?;
        copy.send(self.binary(at)).await?;
        match copy.finish().await {
            Ok(_) => transaction.commit().await?,
            Err(sqlx::Error::Database(wrong))
                if wrong.constraint() == Some("tollgate_entries_pkey") =>
            {
                return Ok(None);
            }
            Err(wrong) => return Err(wrong),
        }
        Ok(Some(connection))
    }

    /// The entries as a `COPY` reads them, written then.
    fn binary(&self, at: i64) -> Vec<u8> {
        let mut bytes = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
        for (n, (usage, account)) in (self.first..).zip(&self.entries) {
            // A time is below 2^53.
            let (begin, end) = (usage.window.begin as i64, usage.window.end as i64);
            let kind = match at < end + CLOSES_AFTER as i64 {
                true => "usage",
                false => "correction",
            };
            let number = i64::to_be_bytes;
            let (writer, n, units) = (number(self.writer), number(n), number(usage.units));
            let (begin, end, at) = (number(begin), number(end), number(at));
            let (rule, account) = (usage.rule.as_bytes(), account.as_bytes());
            let fields: [&[u8]; 9] = [
                &writer,
                &n,
                kind.as_bytes(),
                rule,
                account,
                &begin,
                &end,
                &units,
                &at,
            ];
            bytes.extend((fields.len() as i16).to_be_bytes());
            for field in fields {
                bytes.extend((field.len() as i32).to_be_bytes());
                bytes.extend(field);
            }
        }
        bytes.extend((-1_i16).to_be_bytes());
        bytes
    }
}

/// What stands for a rule's key.
fn known(usage: &Usage) -> u128 {
    // In memory, one key is the same under each.
    usage.subject.bits() ^ u128::from(fnv(FNV, usage.rule.as_bytes()))
}

/// The name of an account as it is written: without what breaks a line.
pub(crate) fn name_of(account: &str) -> String {
    let mut end = account.len().min(LONGEST);
    while !account.is_char_boundary(end) {
        end -= 1;
    }
    account[..end].replace(|c: char| c.is_control(), "?")
}

impl Database {
    /// The account of a key that this process does not know.
    pub(crate) async fn account_of(
        &self,
        rule: &str,
        key: Fingerprint,
    ) -> Result<Option<String>, LedgerError> {
        let sql = "SELECT account FROM tollgate_subjects WHERE rule = $1 AND subject = $2";
        let query = sqlx::query_scalar(sql).bind(rule).bind(subject(key));
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// How the accounts of these keys are called, as far as anybody knows. One question is about all settlements long after their
    /// requests, whose accounts this process has forgotten.
    pub(crate) async fn names<'a>(
        &self,
        keys: impl Iterator<Item = (&'a Arc<str>, Fingerprint, Option<&'a Arc<str>>)> + Clone,
    ) -> Result<Vec<String>, LedgerError> {
        let unnamed = keys.clone().filter(|(.., account)| account.is_none());
        let unnamed: Vec<_> = unnamed
            .map(|(rule, key, _)| json!([**rule, subject(key)]))
            .collect();
        let mut found = HashMap::new();
        if !unnamed.is_empty() {
            let sql = format!(
                "SELECT rule, subject, account FROM tollgate_subjects
                WHERE (rule, subject) IN (SELECT value ->> 0, value ->> 1 FROM {})",
                self.dialect.json_rows()
            );
            let query = sqlx::query_as::<_, (String, String, String)>(&sql)
                .bind(Value::from(unnamed).to_string());
            let rows = query.fetch_all(&self.pool).await?.into_iter();
            found.extend(rows.map(|(rule, key, account)| ((rule, key_of(&key)), account)));
        }
        let name = |(rule, key, account): (&Arc<str>, _, Option<&Arc<str>>)| match account {
            Some(account) => name_of(account),
            None => found
                .get(&(rule.to_string(), key))
                .cloned()
                .unwrap_or_else(|| format!("?{}", subject(key))),
        };
        Ok(keys.map(name).collect())
    }

    /// A hundred keys of an account at most.
    pub(crate) async fn subjects(
        &self,
        rule: &str,
        account: &str,
    ) -> Result<Vec<Fingerprint>, LedgerError> {
        let sql = "SELECT subject FROM tollgate_subjects WHERE rule = $1 AND account = $2 ORDER BY subject LIMIT 100";
        let query = sqlx::query_scalar::<_, String>(sql)
            .bind(rule)
            .bind(account);
        let subjects = query.fetch_all(&self.pool).await?;
        Ok(subjects.iter().map(|subject| key_of(subject)).collect())
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
        let query = sqlx::query_scalar(sql)
            .bind(account)
            .bind(rule)
            .bind(window_end as i64);
        Ok(query.fetch_one(&self.pool).await?)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::journal::Window;
    use tollgate_test_servers::postgres_server::PostgresServer;

    use super::*;
    use crate::schema::MOST_UNITS;

    #[tokio::test]
    async fn a_batch_that_is_sent_twice_is_written_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = PostgresServer::start().await;
        let file = format!("sqlite:{}/ledger.db", folder.path().display());
        for url in [file, server.url()] {
            let database = Database::open(&url, 2, None).await.expect("it opens");
            let mut batch = Batch::default();
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
                batch.entries.first = 0;
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
            let mut other = Batch::default();
            other.add([usage(Some("bolt"), 1)].into_iter());
            let (one, two) = tokio::join!(batch.write(&database), other.write(&database));
            one.and(two).expect("they write");
            let sums = sum("acme, \"inc\" {}").await + sum("bolt").await;
            assert_eq!(sums, 33);
            // More than can be added up holds nothing up.
            for _ in 0..2 {
                batch.add([usage(Some("cone"), i64::MAX), usage(Some("bolt"), 1)].into_iter());
                batch.write(&database).await.expect("it writes");
            }
            assert_eq!(sum("cone").await, MOST_UNITS);
        }
    }

    #[tokio::test]
    async fn the_accounts_of_late_settlements_are_one_question() {
        let server = PostgresServer::start().await;
        let database = Database::open(&server.url(), 2, None).await;
        let (database, mut batch) = (database.expect("it opens"), Batch::default());
        batch.add((0..1_000).map(|key| Usage {
            rule: "units".into(),
            subject: Fingerprint::from_bits(key),
            account: None,
            window: Window { begin: 0, end: 9 },
            units: -1,
        }));
        batch.write(&database).await.expect("it writes");
        let sum = database.sum("units", &format!("?{:032x}", 7), 9).await;
        assert_eq!(sum.expect("it answers"), -1);
        // Each question is a transaction, and counted when its connection ends.
        database.pool.close().await;
        let pool = AnyPool::connect(&server.url()).await.expect("it answers");
        let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'";
        let transactions = sqlx::query_scalar::<_, i64>(sql).fetch_one(&pool).await;
        assert!(transactions.expect("a number") < 500);
    }
}
