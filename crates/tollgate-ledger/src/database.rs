//! The database: SQLite in a file, or Postgres; and what waits to be written to it.

use std::time::Duration;

use sqlx::{
    AnyConnection, AnyPool, Connection as _, Executor as _, Row as _,
    any::{AnyPoolOptions, AnyRow},
    postgres::PgConnectOptions,
};
use tokio::time::timeout;
use tollgate_core::{Tick, journal::Window};

use crate::{
    error::LedgerError,
    schema::{Dialect, migrate},
};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) pool: AnyPool,
    pub(crate) dialect: Dialect,
    /// How writers connect to Postgres, beside the pool.
    pub(crate) postgres: Option<PgConnectOptions>,
    /// How many transactions write entries at once.
    pub(crate) writers: usize,
}

impl Database {
    /// Opens a database, and makes its tables. `most_bytes` is of a file.
    pub(crate) async fn open(
        url: &str,
        connections: u32,
        most_bytes: Option<u64>,
    ) -> Result<Self, LedgerError> {
        let (dialect, url) = dialect_of(url)?;
        let postgres = match dialect {
            Dialect::Sqlite => None,
            Dialect::Postgres => Some(url.parse::<PgConnectOptions>()?),
        };
        // In Postgres, the other half is for requests that wait for a sum.
        let writers = postgres.as_ref().map_or(0, |_| connections.div_ceil(2));
        sqlx::any::install_default_drivers();
        let pages = most_bytes.map(|bytes| format!("PRAGMA max_page_count = {};", bytes / 4096));
        let prepare = match dialect {
            // Each transaction is on the disk when it is committed. Readers and a writer do not wait for each other.
            Dialect::Sqlite => format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {}",
                pages.unwrap_or_default()
            ),
            // A connection that waits for a lock is not free again when its caller has given up.
            Dialect::Postgres => format!(
                "SET application_name = 'tollgate-ledger'; SET lock_timeout = {}",
                PATIENCE.as_millis()
            ),
        };
        let prepared = prepare.clone();
        let pool = AnyPoolOptions::new()
            .max_connections((connections - writers).max(1))
            .acquire_timeout(PATIENCE)
            .after_connect(move |connection, _| {
                let prepare = prepare.clone();
                Box::pin(async move {
                    connection.execute(&*prepare).await?;
                    Ok(())
                })
            })
            .connect(&url)
            .await;
        if let Err(sqlx::Error::PoolTimedOut) = pool {
            // It has tried again and again, and does not say why.
            let attempt = async {
                AnyConnection::connect(&url)
                    .await?
                    .execute(&*prepared)
                    .await
            };
            let again = timeout(PATIENCE, attempt).await;
            again.map_err(|_| sqlx::Error::PoolTimedOut)??;
        }
        let pool = pool?;
        migrate(&pool, dialect).await?;
        Ok(Self {
            pool,
            dialect,
            postgres: postgres.map(|it| it.application_name("tollgate-ledger")),
            writers: writers.max(1) as usize,
        })
    }
}

/// Which database an address is of, and the address with what is usual.
pub(crate) fn dialect_of(url: &str) -> Result<(Dialect, String), LedgerError> {
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => Ok((Dialect::Postgres, url.to_owned())),
        Some(("sqlite", file))
            if file.contains(":memory:") || file.trim_matches('/').is_empty() =>
        {
            Err(LedgerError::setup(
                "a ledger in memory outlives nothing; name a file, such as sqlite:ledger.db",
            ))
        }
        Some(("sqlite", file)) => {
            let settings = if file.contains('?') { "" } else { "?mode=rwc" };
            Ok((Dialect::Sqlite, format!("{url}{settings}")))
        }
        // It may have a password.
        _ => Err(LedgerError::setup(
            "the address of a ledger begins with sqlite: or postgres:, such as sqlite:ledger.db or \
             postgres://user:password@host/database",
        )),
    }
}

/// The window that a row is of.
pub(crate) fn window_of(row: &AnyRow) -> Result<Window, LedgerError> {
    Ok(Window {
        begin: row.try_get::<i64, _>("window_begin")? as Tick,
        end: row.try_get::<i64, _>("window_end")? as Tick,
    })
}

/// Rows that are written next, and their numbers. A row keeps its number until the database has said that it is there: after an unknown
/// outcome it is sent again, and found.
pub(crate) struct Outbox<T> {
    /// Of this process, by chance.
    pub(crate) writer: i64,
    /// The number of the first row.
    pub(crate) first: i64,
    pub(crate) waiting: Vec<T>,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self {
            writer: fastrand::i64(1..),
            first: 0,
            waiting: Vec::new(),
        }
    }
}

impl<T> Outbox<T> {
    /// The first rows are written.
    pub(crate) fn sent(&mut self, rows: usize) {
        self.waiting.drain(..rows);
        self.first += rows as i64;
    }
}

#[cfg(test)]
mod tests {
    use tollgate_test_servers::postgres_server::PostgresServer;

    use super::*;

    #[tokio::test]
    async fn what_is_wrong_with_a_database_is_said() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, "no database").expect("it is written");
        let url = format!("sqlite:{}", file.path().display());
        let wrong = Database::open(&url, 2, None).await.expect_err("it is none");
        assert!(wrong.to_string().contains("not a database"), "{wrong}");
    }

    #[tokio::test]
    async fn a_ledger_is_opened_again_unless_a_later_program_had_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = PostgresServer::start().await;
        let file = format!("sqlite:{}/ledger.db", folder.path().display());
        for url in [file, server.url()] {
            for _ in 0..2 {
                Database::open(&url, 2, None).await.expect("it opens");
            }
            let database = Database::open(&url, 2, None).await.expect("it opens");
            let later = sqlx::query("UPDATE tollgate_schema SET version = 99");
            later.execute(&database.pool).await.expect("the version");
            let wrong = Database::open(&url, 2, None)
                .await
                .expect_err("it is later");
            assert!(wrong.to_string().contains("take a newer"), "{wrong}");
        }
    }
}
