//! What tenants have used and bought, line by line, in a database that outlives the process and Redis.

use std::{
    collections::VecDeque,
    fmt::Display,
    hash::{BuildHasher as _, RandomState},
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{Extension, Json, extract::State};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use tollgate::{DAY, Key, Limiter, clock::Clock};
use tollgate_ledger::{Entry, Ledger, LedgerError, Period, ReportRow as _};

use crate::proxy::Tenant;

/// How many entries a statement shows, the latest ones.
const ENTRIES: usize = 1_000;

/// The accounts of the tenants.
pub(crate) struct Accounts {
    ledger: Ledger,
    limiter: Limiter,
    operator: Option<String>,
    seed: RandomState,
}

impl Accounts {
    /// Those of the durable rules of `limiter`. Who has the key `operator` adds what tenants buy.
    pub(crate) async fn open(
        database: &str,
        limiter: Limiter,
        operator: Option<String>,
    ) -> Result<Arc<Self>, LedgerError> {
        let ledger = Ledger::open(database).await?;
        ledger.attach(&limiter)?;
        Ok(Arc::new(Self {
            ledger,
            limiter,
            operator,
            seed: RandomState::new(),
        }))
    }

    /// Whether this is the operator's key. Hashes come first, by a seed that nobody knows: the time of an answer says nothing of the key.
    fn is_operator(&self, key: &HeaderValue) -> bool {
        self.operator.as_deref().is_some_and(|operator| {
            let (key, operator) = (key.as_bytes(), operator.as_bytes());
            self.seed.hash_one(key) == self.seed.hash_one(operator) && key == operator
        })
    }

    /// The latest entries of a tenant with running sums, as CSV, with those of a moment ago.
    pub(crate) async fn statement(
        &self,
        tenant: Tenant,
        entries: usize,
    ) -> Result<String, LedgerError> {
        self.ledger.flush().await?;
        let mut lines = VecDeque::new();
        let each = |entry: &Entry| {
            if lines.len() == entries {
                lines.pop_front();
            }
            lines.push_back(entry.csv() + "\n");
            ControlFlow::Continue(())
        };
        let tenant = tenant.name();
        self.ledger
            .statement(tenant, None, Period::ALL, each)
            .await?;
        lines.push_front(format!("{}\n", Entry::COLUMNS));
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

#[derive(Deserialize)]
pub(crate) struct TopUp {
    tenant: String,
    tokens: u64,
    /// Such as the number of an invoice. What is not answered is sent again: each id adds its tokens once.
    id: String,
}

/// `POST /top-ups`, for an operator: a tenant has bought tokens, for a year.
pub(crate) async fn top_up(
    State(accounts): State<Arc<Accounts>>,
    headers: HeaderMap,
    Json(top_up): Json<TopUp>,
) -> Result<String, (StatusCode, String)> {
    let failure = |status, error: &dyn Display| (status, format!("{error}\n"));
    let key = headers.get("x-api-key");
    if !key.is_some_and(|key| accounts.is_operator(key)) {
        return Err(failure(StatusCode::UNAUTHORIZED, &"this is for operators"));
    }
    let Some(tenant) = Tenant::all().find(|it| it.name() == top_up.tenant) else {
        let error = format!("there is no tenant {:?}", top_up.tenant);
        return Err(failure(StatusCode::NOT_FOUND, &error));
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_micros(Clock::system().now());
    let (key, until) = (Key::of(tenant.name()), now + 365 * DAY);
    let granted = accounts
        .limiter
        .grant("tokens", &key, top_up.tokens, until, &top_up.id);
    let granted = granted.map_err(|error| failure(StatusCode::UNPROCESSABLE_ENTITY, &error))?;
    match granted.await {
        Ok(balance) => Ok(format!(
            "{} has {} tokens more\n",
            top_up.tenant, balance.units
        )),
        Err(error) => Err(failure(StatusCode::SERVICE_UNAVAILABLE, &error)),
    }
}
