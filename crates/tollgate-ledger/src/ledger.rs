//! The ledger: what it is attached to, and the task that writes.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use sqlx::{postgres::PgConnectOptions, sqlite::SqliteConnectOptions};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use tollgate_core::{
    Limiter, Pending,
    journal::{Base, BaseQuery, DailyUsage, Journal},
    store::{CreditState, Fingerprint},
    sync::{Mutex, lock},
    wall_clock,
};

use crate::{
    database::{Database, Outbox, dialect_of},
    error::LedgerError,
    schema::Dialect,
    writer::{Batch, name_of},
};

/// How long a part of the writing may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many accounts wait to be written at most, with those of the last ten minutes: some 30 MB. Units of more are lost to the ledger,
/// and counted; or their rule denies. As many clients have daily usage in memory.
const MAX_ACCOUNTS: usize = 200_000;

/// For how long no request asks a database that did not answer one in time.
const SILENCE: Duration = Duration::from_secs(1);

/// For how long nothing may have been written before rules deny that say so.
const MAX_DELAY: Duration = Duration::from_secs(300);

/// After how many times of writing a reservation is released whose term is over.
const RELEASED_AFTER: u32 = 10;

/// How a ledger is opened: see [`Ledger::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct LedgerBuilder {
    url: String,
    every: Duration,
    connections: u32,
    max_bytes: Option<u64>,
}

impl LedgerBuilder {
    /// How often is written. Default: each second. What a process has not written is lost with it.
    ///
    /// Take the same in all processes: ten times of it after its term a [reservation](tollgate_core::types::Reservation) is
    /// released, and a settlement of it that is written later is not counted.
    pub fn write_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// How many connections it opens at most. To Postgres it takes at least two, and half of them write. Default: 4.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// How large a file of SQLite may grow. Default: as large as the disk. A full ledger is one that does not answer.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Opens the ledger, and makes its tables if they are not there.
    ///
    /// # Errors
    ///
    /// An address of neither database, one that does not answer, or tables of a later version.
    pub async fn open(self) -> Result<Ledger, LedgerError> {
        self.check()?;
        let database = Database::open(&self.url, self.connections, self.max_bytes).await?;
        let shared = Arc::new(Shared {
            database,
            journals: Mutex::default(),
            batch: tokio::sync::Mutex::default(),
            daily: tokio::sync::Mutex::default(),
            unwritten_since: Mutex::default(),
            look_ups: Mutex::default(),
        });
        let weak = Arc::downgrade(&shared);
        let task = tokio::spawn(write_each(weak, self.every));
        Ok(Ledger { shared, task })
    }

    /// Looks at the address, the settings and the folder of a file, and connects to nothing.
    ///
    /// # Errors
    ///
    /// What cannot be used.
    pub fn check(&self) -> Result<(), LedgerError> {
        if self.every.is_zero() || self.connections == 0 {
            return Err(LedgerError::setup(
                "a ledger writes after some time, and by a connection; take at least 1 of each",
            ));
        }
        let (dialect, url) = dialect_of(&self.url)?;
        if dialect == Dialect::Postgres {
            url.parse::<PgConnectOptions>()?;
            return Ok(());
        }
        let file = url.parse::<SqliteConnectOptions>()?;
        match file.get_filename().parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                let message = format!(
                    "there is no folder {} for the ledger; make it, or name another one",
                    folder.display()
                );
                Err(LedgerError::setup(message))
            }
            _ => Ok(()),
        }
    }
}

/// A ledger in a database: what the [durable](tollgate_core::Rule::durable) rules of limiters admit, charge and give back, by account
/// and window.
///
/// It writes in a task of its own, which ends when this is dropped. [`close`](Self::close) writes what is left before.
#[derive(Debug)]
#[must_use = "a ledger writes until it is dropped"]
pub struct Ledger {
    pub(crate) shared: Arc<Shared>,
    task: JoinHandle<()>,
}

pub(crate) struct Shared {
    pub(crate) database: Database,
    journals: Mutex<Vec<Arc<Journal>>>,
    /// What is being written.
    batch: tokio::sync::Mutex<Batch>,
    daily: tokio::sync::Mutex<Outbox<DailyUsage>>,
    /// Since when nothing could be written.
    unwritten_since: Mutex<Option<Instant>>,
    look_ups: Mutex<LookUps>,
}

/// After look-ups about two clients that got no answer in time, one a second is tried: else each request would wait.
#[derive(Default)]
struct LookUps {
    answered_at: Option<Instant>,
    /// Whose was the last without an answer, and when it was given up. That of one client may take long for reasons of its own.
    late: Option<(Fingerprint, Instant)>,
    next_at: Option<Instant>,
}

/// What a ledger has still to write: see [`Ledger::backlog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// The accounts in memory, with those that were used in the last ten minutes.
    pub accounts: usize,
    /// For how long nothing could be written.
    pub delay: Duration,
    /// Units that were lost to the ledger, for want of room. It only grows.
    pub lost: u64,
    /// Requests and settlements that are not in the [daily usage](tollgate_core::Rule::daily_usage), for want of room. It only grows.
    pub lost_daily: u64,
}

impl Ledger {
    /// Opens a ledger: `sqlite:ledger.db`, or `postgres://user:password@host/database`.
    ///
    /// # Errors
    ///
    /// As [`LedgerBuilder::open`].
    pub async fn open(url: &str) -> Result<Self, LedgerError> {
        Self::builder(url).open().await
    }

    /// The same with other settings.
    pub fn builder(url: &str) -> LedgerBuilder {
        LedgerBuilder {
            url: url.to_owned(),
            every: Duration::from_secs(1),
            connections: 4,
            max_bytes: None,
        }
    }

    /// Writes what the durable rules of this limiter admit from now on, and those of limiters that replace it. Of a layer, take its
    /// `limiter()`.
    ///
    /// # Errors
    ///
    /// The limiter has a ledger already.
    pub fn attach(&self, limiter: &Limiter) -> Result<(), LedgerError> {
        let (journal, shared) = (limiter.journal(), Arc::downgrade(&self.shared));
        let is_new = journal.attach(MAX_ACCOUNTS, move |query| {
            let shared = shared.upgrade();
            Pending::new(async move { shared?.base(query).await })
        });
        if !is_new {
            return Err(LedgerError::setup(
                "this limiter has a ledger already, and would be written twice; attach one to each limiter",
            ));
        }
        lock(&self.shared.journals).push(Arc::clone(journal));
        Ok(())
    }

    /// Writes what was admitted before this call.
    ///
    /// # Errors
    ///
    /// The database does not answer, or refuses. Nothing is lost: it is written later.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost or written twice.
    pub async fn flush(&self) -> Result<(), LedgerError> {
        self.shared.write_since(Instant::now()).await?;
        self.shared.write_daily().await
    }

    /// What is still to be written.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        self.shared.backlog()
    }

    /// Writes what is left, and notes nothing from now on.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush); then what was left is lost.
    pub async fn close(self) -> Result<(), LedgerError> {
        self.shared.detach();
        let written = self.flush().await;
        // A database that has stopped may hold a connection.
        let _ = timeout(PATIENCE, self.shared.database.pool.close()).await;
        written
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.detach();
    }
}

impl Shared {
    fn detach(&self) {
        lock(&self.journals)
            .iter()
            .for_each(|journal| journal.detach());
    }

    /// Writes what was admitted before `asked`, unless another one who waited for it has.
    pub(crate) async fn write_since(&self, asked: Instant) -> Result<(), LedgerError> {
        let mut batch = self.batch.lock().await;
        if batch.complete_at.is_some_and(|at| at >= asked) {
            return Ok(());
        }
        let began = Instant::now();
        let now = wall_clock();
        let journals = lock(&self.journals).clone();
        let write = async {
            // No more than one batch waits: what comes meanwhile is added up in the journals.
            batch.write(&self.database).await?;
            batch.movements.write(&self.database).await?;
            batch.add(journals.iter().flat_map(|journal| journal.take(now)));
            let movements = journals.iter().flat_map(|journal| journal.take_movements());
            batch.movements.waiting.extend(movements);
            batch.write(&self.database).await?;
            batch.movements.write(&self.database).await
        };
        let in_time = timeout(PATIENCE, write).await;
        let written = in_time.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()));
        if written.is_err() {
            batch.written_since = None;
        }
        batch.written_since.get_or_insert(Instant::now());
        self.note_end(began, written.is_ok());
        written?;
        batch.complete_at = Some(began);
        Ok(())
    }

    /// Writes what was counted by day. No request waits for this, and a failure holds nothing else up.
    async fn write_daily(&self) -> Result<(), LedgerError> {
        let mut batch = self.daily.lock().await;
        let journals = lock(&self.journals).clone();
        let write = batch.write(&self.database, &journals);
        let written = timeout(PATIENCE, write).await;
        written.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))
    }

    /// An attempt to write, which began then, has ended.
    fn note_end(&self, began: Instant, is_written: bool) {
        let mut unwritten = lock(&self.unwritten_since);
        *unwritten = (!is_written).then(|| unwritten.unwrap_or(began));
        let since = *unwritten;
        drop(unwritten);
        let is_behind = since.is_some_and(|since| since.elapsed() > MAX_DELAY);
        for journal in lock(&self.journals).iter() {
            journal.set_behind(is_behind);
        }
        self.report();
    }

    /// Releases reservations whose term is over, of the rules in force here. Those who have settled one have written that by then, as
    /// long as they could: this process could for as long.
    async fn release(&self, after: Duration) -> Result<(), LedgerError> {
        let since = self.batch.lock().await.written_since;
        if since.is_none_or(|since| since.elapsed() < after) {
            return Ok(());
        }
        let begun = Instant::now();
        let journals = lock(&self.journals).clone();
        for store in journals.iter().filter_map(|journal| journal.store()) {
            for rule in store
                .rules()
                .rules()
                .iter()
                .filter(|rule| rule.is_durable())
            {
                self.database
                    .release(&*store, rule.name(), after, begun + PATIENCE / 2)
                    .await?;
            }
        }
        Ok(())
    }

    /// What there is of a key, for a store that has forgotten it. What this process has not written is written before.
    async fn base(&self, query: BaseQuery) -> Option<Base> {
        let (asked, database) = (Instant::now(), &self.database);
        {
            let look_ups = &mut *lock(&self.look_ups);
            let late = look_ups.late.filter(|(of, _)| *of == query.subject);
            let is_late = late.is_some_and(|(_, at)| asked < at + 2 * SILENCE);
            // Who has this patience is a person.
            if query.within < PATIENCE && (is_late || look_ups.next_at > Some(asked)) {
                return None;
            }
            if let Some(next_at) = &mut look_ups.next_at {
                *next_at = asked + SILENCE;
            }
        }
        let look_up = async {
            self.write_since(asked).await.ok()?;
            let (rule, subject) = (&query.rule, query.subject);
            let account = match &query.account {
                Some(account) => name_of(account),
                None => database.account_of(rule, subject).await.ok()??,
            };
            if let Some(change) = query.change.as_ref().filter(|_| !account.is_empty()) {
                let written = database.change_credits(&query, &account, change).await;
                written.ok()?;
            }
            let used = database.sum(rule, &account, query.window.end).await.ok()?;
            let earlier = match query.earlier {
                0 => Vec::new(),
                most => database
                    .earlier(rule, &account, query.window.begin, most)
                    .await
                    .ok()?,
            };
            let credits = match query.has_credits {
                true => database.credits(rule, &account).await.ok()?,
                false => CreditState::default(),
            };
            Some(Base {
                used: u64::try_from(used).unwrap_or(0),
                earlier,
                credits,
            })
        };
        let answer = timeout(query.within, look_up).await;
        let (now, mut look_ups) = (Instant::now(), lock(&self.look_ups));
        match &answer {
            Ok(Some(_)) => {
                look_ups.answered_at = Some(now);
                (look_ups.late, look_ups.next_at) = (None, None);
            }
            Ok(None) => {}
            // Of many at once, some may be late.
            Err(_) if look_ups.answered_at >= Some(asked) => {}
            Err(_) => {
                let before = look_ups.late.replace((query.subject, now));
                if look_ups.next_at.is_some() || before.is_some_and(|(of, _)| of != query.subject) {
                    look_ups.next_at = Some(now + SILENCE);
                }
            }
        }
        answer.ok()?
    }

    fn backlog(&self) -> Backlog {
        let journals = lock(&self.journals);
        let since = *lock(&self.unwritten_since);
        Backlog {
            accounts: journals.iter().map(|journal| journal.accounts()).sum(),
            delay: since.map_or(Duration::ZERO, |since| since.elapsed()),
            lost: journals.iter().map(|journal| journal.lost()).sum(),
            lost_daily: journals.iter().map(|journal| journal.lost_daily()).sum(),
        }
    }

    #[cfg(feature = "metrics")]
    fn report(&self) {
        let backlog = self.backlog();
        metrics::gauge!("tollgate_ledger_backlog_accounts").set(backlog.accounts as f64);
        metrics::gauge!("tollgate_ledger_backlog_seconds").set(backlog.delay.as_secs_f64());
        metrics::counter!("tollgate_ledger_lost_units_total").absolute(backlog.lost);
        metrics::counter!("tollgate_ledger_lost_daily_usage_total").absolute(backlog.lost_daily);
    }

    #[cfg(not(feature = "metrics"))]
    fn report(&self) {}
}

tollgate_core::debug_fields!(Shared, it => backlog: it.backlog());

/// The task that writes. After an error it tries again the next time. After a panic too, of a recorder of metrics for example: until
/// something was written, nothing is taken out of the batch.
async fn write_each(shared: Weak<Shared>, every: Duration) {
    loop {
        sleep(every).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let began = Instant::now();
        // A panic ends this task alone, and so does the end of the one around it.
        let mut attempt = JoinSet::new();
        let writer = Arc::clone(&shared);
        attempt.spawn(async move {
            if writer.write_since(began).await.is_ok() {
                let _ = writer.write_daily().await;
                let after = every.saturating_mul(RELEASED_AFTER);
                let _ = timeout(PATIENCE, writer.release(after)).await;
            }
        });
        if let Some(Err(_)) = attempt.join_next().await {
            shared.batch.lock().await.written_since = None;
            shared.note_end(began, false);
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use metrics::{
        Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };
    use tollgate_core::{DAY, Key as Client, MemoryStore, Quota, Rule};

    use super::*;

    /// Panics once, after entries were written.
    #[derive(Default)]
    struct PanickingRecorder(AtomicBool);

    impl Recorder for PanickingRecorder {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            let is_of_entries = key.name() == "tollgate_ledger_entries_total";
            assert!(!is_of_entries || self.0.swap(true, Ordering::Relaxed));
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn a_panic_counts_as_a_failure_and_the_next_attempt_writes_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let recorder = PanickingRecorder::default();
        let written = metrics::with_local_recorder(&recorder, || {
            runtime.block_on(async {
                let url = format!("sqlite:{}/ledger.db", folder.path().display());
                let ledger = Ledger::builder(&url)
                    .write_every(Duration::from_millis(10))
                    .open()
                    .await
                    .expect("it opens");
                let rule =
                    Rule::new("units", Quota::fixed_window(9, DAY)).durable(|_| "acme".into());
                let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("valid");
                ledger.attach(&limiter).expect("it has none");
                let check = limiter.check("units", &Client::shared()).expect("the rule");
                assert!(limiter.acquire(&[check.with_cost(5)]).await.is_allowed());
                while ledger.backlog().delay.is_zero() {
                    sleep(Duration::from_millis(1)).await;
                }
                while !ledger.backlog().delay.is_zero() {
                    sleep(Duration::from_millis(1)).await;
                }
                let sql = "SELECT units FROM tollgate_totals WHERE account = 'acme'";
                let sums = sqlx::query_scalar::<_, i64>(sql);
                sums.fetch_all(&ledger.shared.database.pool).await
            })
        });
        assert_eq!(written.expect("it answers"), [5]);
        assert!(recorder.0.into_inner(), "it has panicked");
    }
}
