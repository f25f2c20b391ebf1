//! Accounts a second into Postgres by the writer of a process, and a statement of a million entries. See `benches/README.md`.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin ledger --features ledger
//! ```

use std::{error::Error, fs, ops::ControlFlow, time::Duration};

use tokio::{runtime::Builder, time::Instant};
use tollgate_benches::check::{DAILY, account, note};
use tollgate_core::{Key, Limiter, MemoryStore, Rule};
use tollgate_ledger::{Ledger, Period};
use tollgate_test_servers::postgres_server::PostgresServer;

const ACCOUNTS: u32 = 100_000;
const ROUNDS: u32 = 8;
const ENTRIES: u32 = 1_000_000;

#[expect(clippy::print_stdout, reason = "it is what this program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // It waits for its disk, as a Postgres does.
        let server = PostgresServer::start_with(&["fsync=on"]).await;
        // It writes when it is told to.
        let ledger = Ledger::builder(&server.url()).write_every(Duration::from_secs(3_600));
        let ledger = ledger.open().await?;
        let rule = Rule::new("units", DAILY).durable(account);
        let limiter = Limiter::new(MemoryStore::new(), [rule])?;
        let check = |name: u32| limiter.check("units", &Key::of(format!("account-{name}")));
        ledger.attach(&limiter)?;
        // A key that is new asks for its sum. That is not measured: it is known to be 0.
        limiter.journal().detach();
        note(limiter.journal());
        sqlx::any::install_default_drivers();
        let pool = sqlx::AnyPool::connect(&server.url()).await?;
        println!("accounts a second into Postgres, {ACCOUNTS} in each round, and the seconds of processors that it took:");
        for round in 0..ROUNDS {
            for name in 0..ACCOUNTS {
                let _ = limiter.acquire(&[check(name)?]).await;
            }
            let (start, before) = (Instant::now(), processor_seconds(&pool).await?);
            ledger.flush().await?;
            let rate = f64::from(ACCOUNTS) / start.elapsed().as_secs_f64();
            let after = processor_seconds(&pool).await?;
            let (ours, its) = (after.0 - before.0, after.1 - before.1);
            println!("round {round}: {rate:.0}, {ours:.2} s here and {its:.2} s in Postgres");
        }
        let fill = format!(
            "INSERT INTO tollgate_entries SELECT 0, n, 'usage', 'units', 'acme', 0, 2000000000000000, 1, n
            FROM generate_series(1, {ENTRIES}) AS n"
        );
        sqlx::query(&fill).execute(&pool).await?;
        pool.close().await;
        // The peak begins anew.
        fs::write("/proc/self/clear_refs", "5")?;
        let (before, start, mut sum) = (peak_kilobytes()?, Instant::now(), 0);
        let each = |entry: &tollgate_ledger::Entry| {
            sum = entry.sum;
            ControlFlow::Continue(())
        };
        ledger.statement("acme", None, Period::ALL, each).await?;
        let (took, after) = (start.elapsed().as_secs_f64(), peak_kilobytes()?);
        let more = after.saturating_sub(before);
        println!("a statement of {sum} entries: {took:.1} s, at most {after} kB of memory, {more} kB more than before");
        Ok(())
    })
}

/// Those that this process has used, and those of Postgres.
async fn processor_seconds(pool: &sqlx::AnyPool) -> Result<(f64, f64), Box<dyn Error>> {
    let of = |process: &str| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        // Hundredths of a second, in user space and in the kernel.
        let times = fields.split_whitespace().skip(11).take(2);
        times.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() / 100.0
    };
    let sql = "SELECT CAST(pid AS TEXT) FROM pg_stat_activity";
    let pids = sqlx::query_scalar::<_, String>(sql).fetch_all(pool).await?;
    Ok((of("self"), pids.iter().map(|pid| of(pid)).sum()))
}

/// The most memory that this process has had.
fn peak_kilobytes() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    Ok(peak.ok_or("the kernel does not say it")?.parse()?)
}
