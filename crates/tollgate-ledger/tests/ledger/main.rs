//! The ledger on real databases: SQLite in files, and a Postgres of the tests' own.

mod balances;
mod common;
mod daily_usage;
mod killed;
mod model;
mod reports;
mod reservations;
mod writes;

/// The time of the system: these tests wait for real databases.
#[expect(clippy::disallowed_methods, reason = "an end that is to come")]
fn now() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// What the other processes do; nothing in this one.
#[test]
fn a_process_plays_its_role() {
    killed::play();
}
