//! The database: SQLite in a file, or Postgres.

use std::time::Duration;

use sqlx::{AnyPool, Executor as _, any::AnyPoolOptions};

use crate::{
    error::LedgerError,
    schema::{VERSIONS, migrate},
};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a database writes what the two write differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// Begins a transaction that writes. One of SQLite that begins to write later may be refused.
    pub(crate) fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    /// The time of the database in µs since the epoch: one clock for all who write.
    pub(crate) fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('now', 'subsec') * 1000000 AS BIGINT)",
            Self::Postgres => "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) pool: AnyPool,
    pub(crate) dialect: Dialect,
}

impl Database {
    /// Opens a database, and makes its tables. `most_bytes` is of a file.
    pub(crate) async fn open(
        url: &str,
        connections: u32,
        most_bytes: Option<u64>,
    ) -> Result<Self, LedgerError> {
        let database = Self::connect(url, connections, most_bytes).await?;
        migrate(&database.pool, database.dialect, &VERSIONS).await?;
        Ok(database)
    }

    /// As the tables are.
    pub(crate) async fn connect(
        url: &str,
        connections: u32,
        most_bytes: Option<u64>,
    ) -> Result<Self, LedgerError> {
        let (dialect, url) = match url.split_once(':') {
            Some(("postgres" | "postgresql", _)) => (Dialect::Postgres, url.to_owned()),
            Some(("sqlite", file))
                if file.contains(":memory:") || file.trim_matches('/').is_empty() =>
            {
                return Err(LedgerError::setup(
                    "a ledger in memory outlives nothing; name a file, such as sqlite:ledger.db",
                ));
            }
            Some(("sqlite", file)) if !file.contains('?') => {
                (Dialect::Sqlite, format!("{url}?mode=rwc"))
            }
            Some(("sqlite", _)) => (Dialect::Sqlite, url.to_owned()),
            _ => {
                // It may have a password.
                return Err(LedgerError::setup(
                    "the address of a ledger begins with sqlite: or postgres:, such as sqlite:ledger.db or \
                     postgres://user:password@host/database",
                ));
            }
        };
        sqlx::any::install_default_drivers();
        let pages = most_bytes.map(|bytes| format!("PRAGMA max_page_count = {};", bytes / 4096));
        let prepare = match dialect {
            // Each transaction is on the disk when it is committed. Readers and a writer do not wait for each other.
            Dialect::Sqlite => format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {}",
                pages.unwrap_or_default()
            ),
            Dialect::Postgres => "SET application_name = 'tollgate-ledger'".to_owned(),
        };
        let pool = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(PATIENCE)
            .after_connect(move |connection, _| {
                let prepare = prepare.clone();
                Box::pin(async move {
                    connection.execute(&*prepare).await?;
                    Ok(())
                })
            })
            .connect(&url)
            .await?;
        Ok(Self { pool, dialect })
    }
}
