//! What tenants have used, line by line, in a database that outlives the process and Redis.

use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

use axum::{Extension, extract::State};
use http::StatusCode;
use tollgate::Limiter;
use tollgate_ledger::{Entry, Ledger, LedgerError, Period, ReportRow as _};

use crate::proxy::Tenant;

/// How many entries a statement shows, the latest ones.
const ENTRIES: usize = 1_000;

/// The accounts of the tenants.
pub(crate) struct Accounts(Ledger);

impl Accounts {
    /// Those of the durable rules of `limiter`.
    pub(crate) async fn open(database: &str, limiter: &Limiter) -> Result<Arc<Self>, LedgerError> {
        let ledger = Ledger::open(database).await?;
        ledger.attach(limiter)?;
        Ok(Arc::new(Self(ledger)))
    }

    /// The latest entries of a tenant with running sums, as CSV, with those of a moment ago.
    pub(crate) async fn statement(
        &self,
        tenant: Tenant,
        entries: usize,
    ) -> Result<String, LedgerError> {
        self.0.flush().await?;
        let mut lines = VecDeque::new();
        let each = |entry: &Entry| {
            if lines.len() == entries {
                lines.pop_front();
            }
            lines.push_back(entry.csv() + "\n");
            ControlFlow::Continue(())
        };
        let tenant = tenant.name();
        self.0.statement(tenant, None, Period::ALL, each).await?;
        lines.push_front(Entry::COLUMNS.join(",") + "\n");
        Ok(lines.into_iter().collect())
    }
}

/// `GET /statement`.
pub(crate) async fn statement(
    State(accounts): State<Arc<Accounts>>,
    Extension(tenant): Extension<Tenant>,
) -> Result<String, StatusCode> {
    let statement = accounts.statement(tenant, ENTRIES).await;
    statement.map_err(|error| {
        println!("no statement: {error}");
        StatusCode::SERVICE_UNAVAILABLE
    })
}
