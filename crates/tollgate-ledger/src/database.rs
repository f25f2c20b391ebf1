//! The database: SQLite in a file, or Postgres.

use std::time::Duration;

use sqlx::{AnyPool, Executor as _, any::AnyPoolOptions, postgres::PgConnectOptions};

use crate::{
    dialect::Dialect,
    error::LedgerError,
    schema::{VERSIONS, migrate},
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
            Dialect::Postgres => "SET application_name = 'tollgate-ledger'".to_owned(),
        };
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
            .await?;
        Ok(Self {
            pool,
            dialect,
            postgres: postgres.map(|it| it.application_name("tollgate-ledger")),
            writers: writers.max(1) as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Row as _;
    use tollgate_test_servers::postgres_server::PostgresServer;

    use super::*;

    #[tokio::test]
    async fn a_ledger_of_an_earlier_version_has_the_same_sums_afterwards() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = PostgresServer::start().await;
        let file = format!("sqlite:{}/ledger.db", folder.path().display());
        for url in [file, server.url()] {
            let database = Database::connect(&url, 2, None).await.expect("it opens");
            let (pool, dialect) = (&database.pool, database.dialect);
            migrate(pool, dialect, &VERSIONS[..1])
                .await
                .expect("the first");
            // Of a window that ends late, and of one that was over.
            for (n, end, units) in [(0, 1_i64 << 52, 5_i64), (1, 1 << 52, -2), (2, 1_000, 7)] {
                let sql = "INSERT INTO tollgate_entries (writer, n, kind, rule, account, window_begin, window_end, units, at)
                    VALUES (1, $1, 'usage', 'units', 'acme', 0, $2, $3, 700000000)";
                let query = sqlx::query(sql).bind(n).bind(end).bind(units);
                query.execute(pool).await.expect("an entry");
            }
            for version in [2, 2, 3, 4, 5, 5] {
                let migrated = migrate(pool, dialect, &VERSIONS[..version]).await;
                migrated.expect("as many as that");
            }
            let totals = sqlx::query("SELECT units, late FROM tollgate_totals ORDER BY window_end");
            let totals = totals.fetch_all(pool).await.expect("the totals");
            let totals = totals
                .iter()
                .map(|row| (row.get::<i64, _>(0), row.get::<i64, _>(1)));
            assert_eq!(totals.collect::<Vec<_>>(), [(0, 7), (3, 0)]);
            sqlx::query("UPDATE tollgate_schema SET version = 99")
                .execute(pool)
                .await
                .expect("a later program");
            let wrong = migrate(pool, dialect, &VERSIONS)
                .await
                .expect_err("it is later");
            assert!(wrong.to_string().contains("take a newer"), "{wrong}");
        }
    }
}
