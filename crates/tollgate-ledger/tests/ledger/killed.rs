//! Two processes on one Redis and one Postgres, all of which are killed in turn. The third witness is what each process was allowed, by
//! its own log, which outlives it.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions, read_to_string},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, task::spawn_blocking, time::sleep};
use tollgate_core::{Key, Limiter, MAX_PERIOD, OnStoreError, Quota, Rule, StoreErrorKind};
use tollgate_ledger::Ledger;
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_test_servers::{
    postgres_server::PostgresServer,
    process::{self, Process},
    redis_server::RedisServer,
};

use crate::common::{account, sums};

const ACCOUNTS: u64 = 20;
const LIMIT: u64 = 80;
/// The most units of a request, once more for its settlement: it may be written when its process is killed before its log has it.
const UNLOGGED: i64 = 10;

#[derive(Deserialize, Serialize)]
struct Role {
    redis: String,
    postgres: String,
    log: PathBuf,
}

/// Requests for some time.
#[derive(Deserialize, Serialize)]
struct Load {
    seed: u64,
    millis: u64,
}

/// What was allowed, settled to what it really cost, by account.
type Sums = BTreeMap<String, i64>;

/// A line for each change; and one that says how many of them are written to the ledger.
struct Log(Mutex<(File, usize)>);

impl Log {
    fn allowed(&self, account: &str, units: i64) {
        let (file, lines) = &mut *self.0.lock().expect("no thread panics");
        *lines += 1;
        writeln!(file, "{account} {units}").expect("there is room");
    }

    async fn write(&self, ledger: &Ledger) {
        let lines = self.0.lock().expect("no thread panics").1;
        if ledger.flush().await.is_ok() {
            let file = &mut self.0.lock().expect("no thread panics").0;
            writeln!(file, "written {lines}").expect("there is room");
        }
    }

    /// All of it, and the units that may not be written.
    fn read(path: &Path) -> (Sums, Sums) {
        let (mut all, mut unwritten) = (Sums::new(), Sums::new());
        let text = read_to_string(path).expect("its process has begun it");
        let (mut written, mut lines) = (0, Vec::new());
        // The last line may be cut off.
        for line in text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'))
        {
            let (what, number) = line.split_once(' ').expect("as it was written");
            let number: i64 = number.parse().expect("as it was written");
            match what {
                "written" => written = number as usize,
                account => lines.push((account.to_owned(), number)),
            }
        }
        for (index, (account, units)) in lines.into_iter().enumerate() {
            if index >= written {
                *unwritten.entry(account.clone()).or_default() += units.abs();
            }
            *all.entry(account).or_default() += units;
        }
        (all, unwritten)
    }
}

/// The role of another process.
pub(crate) fn play() {
    let Some(role) = process::role::<Role>() else {
        return;
    };
    let runtime = Runtime::new().expect("a runtime");
    let (ledger, limiter) = runtime.block_on(async {
        let keys = Keys::hashed(Secret::from_bytes([7; 32]).expect("long enough"));
        let store = RedisStore::builder(&role.redis, "shop", keys);
        let store = store.connect().expect("valid");
        store.connected().await;
        let quota = Quota::fixed_window(LIMIT, MAX_PERIOD);
        let rule = Rule::new("units", quota).durable(account);
        let rule = rule.on_store_error(OnStoreError::Deny);
        let limiter = Limiter::new(store, [rule]).expect("valid");
        let ledger = Ledger::builder(&role.postgres).write_every(Duration::from_millis(50));
        let ledger = ledger.open().await.expect("it opens");
        ledger.attach(&limiter).expect("it has none");
        (ledger, limiter)
    });
    let file = OpenOptions::new().append(true).create(true).open(&role.log);
    let log = Log(Mutex::new((file.expect("a file"), 0)));
    process::reply(&());
    for load in process::loads::<Load>() {
        runtime.block_on(async {
            let writes = async {
                loop {
                    sleep(Duration::from_millis(20)).await;
                    log.write(&ledger).await;
                }
            };
            tokio::select! {
                () = requests(&limiter, &load, &log) => {}
                () = writes => {}
            }
            while ledger.flush().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            log.write(&ledger).await;
        });
        process::reply(&());
    }
}

async fn requests(limiter: &Limiter, load: &Load, log: &Log) {
    let mut rng = fastrand::Rng::with_seed(load.seed);
    let until = tokio::time::Instant::now() + Duration::from_millis(load.millis);
    while tokio::time::Instant::now() < until {
        let name = format!("account-{}", rng.u64(0..ACCOUNTS));
        let units = rng.u64(1..6);
        let check = limiter.check("units", &Key::of(&*name)).expect("the rule");
        let checks = [check.with_cost(units)];
        let decision = limiter.acquire(&checks).await;
        if !decision.is_allowed() {
            sleep(Duration::from_millis(1)).await;
            continue;
        }
        log.allowed(&name, units as i64);
        // Some cost less in the end, by a ticket or a reservation.
        let (cost, ticket) = (rng.u64(0..units), limiter.ticket(&checks, &decision));
        let is_settled = match rng.u8(0..8) {
            0 => {
                ticket.settle(cost);
                true
            }
            1 => match ticket.into_reservation(Duration::from_secs(3_600)).await {
                Ok(reservation) => {
                    let redeemed = limiter.redeem(&reservation).expect("it was written here");
                    let settled = redeemed.settle(cost).await;
                    // Of an unknown outcome the ledger has what was asked.
                    settled.map_or_else(|wrong| wrong.kind() == StoreErrorKind::Timeout, |()| true)
                }
                Err(_) => false,
            },
            _ => false,
        };
        if is_settled {
            log.allowed(&name, cost as i64 - units as i64);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_has_what_was_allowed_whatever_is_killed() {
    let (mut redis, mut postgres) = (RedisServer::start(&[]).await, PostgresServer::start().await);
    let ledger = Ledger::open(&postgres.url()).await.expect("it opens");
    let folder = tempfile::tempdir().expect("a folder");
    let urls = (redis.url(), postgres.url());
    let start = |n: u64| {
        let role = Role {
            redis: urls.0.clone(),
            postgres: urls.1.clone(),
            log: folder.path().join(format!("log-{n}")),
        };
        let mut process = Process::start(&role);
        process.finish::<()>().expect("it starts");
        (process, role.log)
    };
    let mut processes = vec![start(0), start(1)];
    let mut logs: Vec<PathBuf> = processes.iter().map(|it| it.1.clone()).collect();
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut before, mut most, mut killed) = (Sums::new(), Sums::new(), Vec::new());
    for round in 0.. {
        let mut begin = |process: &mut Process| {
            let seed = rng.u64(..);
            process.begin(&Load { seed, millis: 400 });
            Duration::from_millis(seed % 180)
        };
        let begun = processes.iter_mut().map(|it| begin(&mut it.0));
        sleep(begun.fold(Duration::from_millis(20), Duration::max)).await;
        match round {
            // A slow machine takes longer to use up a limit.
            8.. => {}
            6.. => {
                let mut another = start(round);
                begin(&mut another.0);
                logs.push(another.1.clone());
                let (process, log) = std::mem::replace(&mut processes[round as usize % 2], another);
                drop(process);
                killed.push(log);
            }
            _ if round % 2 == 0 => {
                redis.kill();
                redis.restart().await;
            }
            _ => {
                postgres.end();
                postgres.restart().await;
            }
        }
        let ended = processes.into_iter().map(|mut it| {
            spawn_blocking(move || {
                it.0.finish::<()>().expect("it lives");
                it
            })
        });
        let ended: Vec<_> = ended.collect();
        processes = Vec::new();
        for process in ended {
            processes.push(process.await.expect("it ends"));
        }
        let (mut allowed, mut unwritten) = (Sums::new(), Sums::new());
        for log in &logs {
            let (all, rest) = Log::read(log);
            let rest = rest.into_iter().filter(|_| killed.contains(log));
            let add = |sums: &mut Sums, account, units| *sums.entry(account).or_default() += units;
            all.into_iter()
                .for_each(|(account, units)| add(&mut allowed, account, units));
            rest.for_each(|(account, units)| add(&mut unwritten, account, units));
        }
        let written = sums(&ledger).await;
        for (account, units) in &allowed {
            // Without a process that was killed there is nothing between them.
            let bound = unwritten.get(account).unwrap_or(&0) + UNLOGGED * killed.len() as i64;
            let differ = written.get(account).unwrap_or(&0).abs_diff(*units);
            assert!(
                differ <= bound as u64,
                "round {round}, {account}: {differ}, at most {bound}"
            );
            let most = most.entry(account.clone()).or_default();
            *most = (units - before.insert(account.clone(), *units).unwrap_or(0)).max(*most);
        }
        if round >= 8 && before.values().any(|units| *units > LIMIT as i64 * 9 / 10) {
            break;
        }
    }
    // Redis was killed three times, and forgot. What was not written at the time may have been admitted again: no more than what was
    // allowed in a round.
    for (account, units) in &before {
        let bound = LIMIT as i64 + 3 * most[account];
        assert!(*units <= bound, "{account} has used {units} of {LIMIT}");
    }
}
