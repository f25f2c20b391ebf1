//! The tables, which are public: [the guide](crate::guide::ledger) has what each column means.
//!
//! A version never changes once it was published: a change of the tables is a version of its own.

use sqlx::{AnyPool, Executor as _, Row as _};

use crate::error::LedgerError;

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

    /// The elements of a JSON array, which is the first parameter, as a table with the column `value`.
    pub(crate) fn json_rows(self) -> &'static str {
        match self {
            Self::Sqlite => "json_each($1)",
            Self::Postgres => "json_array_elements($1::json) AS r (value)",
        }
    }

    /// Writes whose accounts keys are: of each its rule, what stands for it, and the account, as [rows](Self::json_rows). In order, so
    /// that no two who write wait for each other.
    pub(crate) fn insert_subjects(self) -> String {
        format!(
            "INSERT INTO tollgate_subjects (rule, subject, account)
            SELECT value ->> 0, value ->> 1, value ->> 2 FROM {} WHERE true ORDER BY 1, 2
            ON CONFLICT (rule, subject) DO UPDATE SET account = excluded.account
                WHERE tollgate_subjects.account <> excluded.account",
            self.json_rows()
        )
    }

    /// A sum that stops at a bound: a database refuses to write on where it cannot add up.
    pub(crate) fn bounded(self, sum: &str) -> String {
        let (least, most) = match self {
            Self::Sqlite => ("MIN", "MAX"),
            Self::Postgres => ("LEAST", "GREATEST"),
        };
        format!("{least}({most}({sum}, -{MOST_UNITS}), {MOST_UNITS})")
    }

    /// The time of the database in µs since the epoch: one clock for all who write.
    pub(crate) fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('now', 'subsec') * 1000000 AS BIGINT)",
            Self::Postgres => "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
        }
    }
}

/// The most units of a sum, above or below 0. Two of them are a number too.
pub(crate) const MOST_UNITS: i64 = 1_000_000_000_000_000_000;

/// The versions of the schema, in order.
const VERSIONS: [fn(Dialect) -> String; 1] = [first];

/// The tables of the first release. Sums of entries are kept by a trigger in the transaction that writes them: to add up a month of
/// them would take longer than a request waits. Ten minutes after its end a window is closed, and what comes later stands apart. Sums
/// of balances are kept in the same way; a reservation is open until an entry settles or releases it: of several, the first one stands.
fn first(dialect: Dialect) -> String {
    let (sum, max, of) = match dialect {
        Dialect::Postgres => ("SUM", "GREATEST", "written"),
        Dialect::Sqlite => (
            "",
            "MAX",
            "(SELECT NEW.kind AS kind, NEW.rule AS rule, NEW.account AS account, NEW.window_begin AS window_begin,
                NEW.window_end AS window_end, NEW.units AS units, NEW.at AS at, NEW.until AS until)",
        ),
    };
    let group = |by: &str| match dialect {
        Dialect::Postgres => format!("GROUP BY {by} ORDER BY {by}"),
        Dialect::Sqlite => String::new(),
    };
    let units = |of: &str, units: &str| {
        let sum = dialect.bounded(&format!("{sum}(CASE WHEN {of} THEN {units} ELSE 0 END)"));
        format!("CAST({sum} AS BIGINT)")
    };
    let added =
        |column: &str| dialect.bounded(&format!("tollgate_totals.{column} + excluded.{column}"));
    let add_up = format!(
        "INSERT INTO tollgate_totals (account, rule, window_end, window_begin, units, late, credits)
        SELECT account, rule, window_end, window_begin, {}, {}, {} FROM {of}
        WHERE kind NOT IN ('grant', 'revoke', 'lapse', 'reservation') {}
        ON CONFLICT (account, rule, window_end, window_begin) DO UPDATE SET units = {}, late = {}, credits = {};
        INSERT INTO tollgate_balances SELECT account, rule, CAST({sum}(units) AS BIGINT), {} FROM {of}
        WHERE kind IN ('grant', 'revoke', 'lapse', 'credits') {}
        ON CONFLICT (account, rule) DO UPDATE SET units = tollgate_balances.units + excluded.units,
            until = {max}(tollgate_balances.until, excluded.until);",
        units("kind <> 'credits' AND at < window_end + 600000000", "units"),
        units("kind <> 'credits' AND at >= window_end + 600000000", "units"),
        units("kind = 'credits'", "-units"),
        group("account, rule, window_end, window_begin"),
        added("units"),
        added("late"),
        added("credits"),
        units("kind = 'grant'", "until").replace("SUM", "MAX"),
        group("account, rule"),
    );
    let trigger = match dialect {
        Dialect::Postgres => format!(
            "CREATE FUNCTION tollgate_add_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {add_up}
                RETURN NULL;
            END $$;
            CREATE TRIGGER tollgate_add_up AFTER INSERT ON tollgate_entries
                REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION tollgate_add_up();"
        ),
        Dialect::Sqlite => format!(
            "CREATE TRIGGER tollgate_add_up AFTER INSERT ON tollgate_entries BEGIN {add_up} END;"
        ),
    };
    // A sum that changes stays on its page.
    let with_room = match dialect {
        Dialect::Postgres => "WITH (fillfactor = 50)",
        Dialect::Sqlite => "",
    };
    format!(
        "CREATE TABLE tollgate_entries (
            writer BIGINT NOT NULL,
            n BIGINT NOT NULL,
            kind TEXT NOT NULL,
            rule TEXT NOT NULL,
            account TEXT NOT NULL,
            window_begin BIGINT NOT NULL,
            window_end BIGINT NOT NULL,
            units BIGINT NOT NULL,
            at BIGINT NOT NULL,
            id TEXT,
            actor TEXT,
            reason TEXT,
            until BIGINT,
            PRIMARY KEY (writer, n)
        );
        CREATE UNIQUE INDEX tollgate_entries_by_id ON tollgate_entries (kind, id) WHERE kind = 'adjustment';
        CREATE UNIQUE INDEX tollgate_entries_of_credits ON tollgate_entries (account, rule, kind, id, until)
            WHERE kind IN ('grant', 'revoke', 'lapse');
        CREATE UNIQUE INDEX tollgate_entries_of_reservations ON tollgate_entries (id) WHERE kind IN ('settlement', 'release');
        CREATE INDEX tollgate_entries_by_account ON tollgate_entries (account, at);
        CREATE TABLE tollgate_subjects (
            rule TEXT NOT NULL,
            subject TEXT NOT NULL,
            account TEXT NOT NULL,
            PRIMARY KEY (rule, subject)
        );
        CREATE INDEX tollgate_subjects_by_account ON tollgate_subjects (account, rule);
        CREATE TABLE tollgate_totals (
            account TEXT NOT NULL,
            rule TEXT NOT NULL,
            window_end BIGINT NOT NULL,
            window_begin BIGINT NOT NULL,
            units BIGINT NOT NULL,
            late BIGINT NOT NULL,
            credits BIGINT NOT NULL DEFAULT 0,
            PRIMARY KEY (account, rule, window_end, window_begin)
        ) {with_room};
        CREATE TABLE tollgate_balances (
            account TEXT NOT NULL,
            rule TEXT NOT NULL,
            units BIGINT NOT NULL,
            until BIGINT NOT NULL,
            PRIMARY KEY (account, rule)
        );
        CREATE TABLE tollgate_reservations (
            id TEXT NOT NULL PRIMARY KEY,
            rule TEXT NOT NULL,
            subject TEXT NOT NULL,
            account TEXT NOT NULL,
            window_begin BIGINT NOT NULL,
            window_end BIGINT NOT NULL,
            units BIGINT NOT NULL,
            until BIGINT NOT NULL
        );
        CREATE INDEX tollgate_reservations_by_end ON tollgate_reservations (rule, until);
        CREATE TABLE tollgate_daily_usage (
            account TEXT NOT NULL,
            rule TEXT NOT NULL,
            day TEXT NOT NULL,
            allowed BIGINT NOT NULL,
            denied BIGINT NOT NULL,
            units BIGINT NOT NULL,
            PRIMARY KEY (account, rule, day)
        );
        CREATE TABLE tollgate_daily_batches (writer BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL);
        {trigger}"
    )
}

/// Brings the tables to the newest version of the schema, in one transaction: of several processes that start, one does it.
pub(crate) async fn migrate(pool: &AnyPool, dialect: Dialect) -> Result<(), LedgerError> {
    let mut transaction = pool.begin_with(dialect.begin()).await?;
    if dialect == Dialect::Postgres {
        transaction
            .execute("SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(8389749000)")
            .await?;
    }
    transaction
        .execute("CREATE TABLE IF NOT EXISTS tollgate_schema (version BIGINT NOT NULL)")
        .await?;
    let row = transaction
        .fetch_one("SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM tollgate_schema")
        .await?;
    let present: i64 = row.try_get(0)?;
    let known = VERSIONS.len() as i64;
    if present > known {
        return Err(LedgerError::setup(format!(
            "the ledger has version {present} of the schema, and this program knows {known}; take a newer tollgate-ledger"
        )));
    }
    for (version, sql) in (1_i64..).zip(VERSIONS).skip(present as usize) {
        sqlx::raw_sql(&sql(dialect))
            .execute(&mut *transaction)
            .await?;
        sqlx::query("INSERT INTO tollgate_schema VALUES ($1)")
            .bind(version)
            .execute(&mut *transaction)
            .await?;
    }
    Ok(transaction.commit().await?)
}
