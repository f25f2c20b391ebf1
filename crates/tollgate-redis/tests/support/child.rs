//! Processes of a test's own: the test binary, run again in a role.
//!
//! A program that starts some has one test that [plays](play) the role, and is a test of nothing where there is none.

use std::{
    env, fmt,
    fs::OpenOptions,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;
use tollgate_core::{Check, Decision, Key, Limiter, MAX_PERIOD, OnStoreError, Outcome, Rule};
use tollgate_redis::RedisStore;

use super::quotas::every_algorithm;

/// The test that plays the role, in every program that starts processes.
const ROLE: &str = "a_process_plays_its_role";
const ADDRESS: &str = "TOLLGATE_TEST_ADDRESS";
const METER: &str = "TOLLGATE_TEST_METER";
/// So that lines of the test harness are told from answers.
const ANSWER: &str = "tollgate: ";

/// One rule of a request: `limit` units in ten years.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) rule: String,
    /// The algorithm's place among [`every_algorithm`].
    pub(crate) algorithm: usize,
    pub(crate) limit: u64,
    pub(crate) cost: u64,
    /// Clients that take turns.
    pub(crate) clients: u64,
}

/// What a process is told to do: so many tasks ask so many times each, each admission is a byte in the meter.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) tasks: u64,
    pub(crate) attempts: u64,
    /// The process kills itself, as `kill -9` does, once it has been admitted so often; 0 is never.
    pub(crate) dies_after: u64,
    pub(crate) asks: Vec<Ask>,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.tasks, self.attempts, self.dies_after)?;
        for ask in &self.asks {
            let (algorithm, limit, cost) = (ask.algorithm, ask.limit, ask.cost);
            write!(
                f,
                " {},{algorithm},{limit},{cost},{}",
                ask.rule, ask.clients
            )?;
        }
        Ok(())
    }
}

impl FromStr for Job {
    type Err = std::num::ParseIntError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap_or_default().parse();
        let (tasks, attempts, dies_after) = (number()?, number()?, number()?);
        let asks = words.map(|word| {
            let mut parts = word.split(',');
            let rule = parts.next().unwrap_or_default().to_owned();
            let mut number = || parts.next().unwrap_or_default().parse::<u64>();
            Ok(Ask {
                rule,
                algorithm: number()? as usize,
                limit: number()?,
                cost: number()?,
                clients: number()?,
            })
        });
        Ok(Self {
            tasks,
            attempts,
            dies_after,
            asks: asks.collect::<Result<_, _>>()?,
        })
    }
}

impl Job {
    pub(crate) fn limiter(&self, store: &RedisStore) -> Limiter {
        let rules = self.asks.iter().map(|ask| {
            let quota = every_algorithm(ask.limit, MAX_PERIOD)[ask.algorithm];
            Rule::new(&*ask.rule, quota).on_store_error(OnStoreError::Deny)
        });
        Limiter::new(store.clone(), rules).expect("the rules of a job are valid")
    }

    /// The checks of attempt number `attempt`.
    pub(crate) fn checks(&self, limiter: &Limiter, attempt: u64) -> Vec<Check> {
        let check = |ask: &Ask| {
            let client = format!("client-{}", attempt % ask.clients.max(1));
            let check = limiter.check(&ask.rule, &Key::of([client]));
            check.expect("the rule is there").with_cost(ask.cost)
        };
        self.asks.iter().map(check).collect()
    }
}

/// A store of tests that count to the unit: no answer is given up.
pub(crate) async fn patient_store(address: &str) -> RedisStore {
    let store = RedisStore::builder(address, "processes", tollgate_redis::Keys::plain())
        .deadline(Duration::from_secs(20))
        .connect()
        .expect("a valid address");
    store.connected().await;
    store
}

/// Asks, and wants an answer from the store.
pub(crate) async fn ask(limiter: &Limiter, checks: &[Check]) -> Decision {
    let decision = limiter.acquire(checks).await;
    let answered = decision
        .verdicts()
        .iter()
        .all(|verdict| verdict.outcome() == Outcome::NotAsked || verdict.has_numbers());
    assert!(answered, "the store has not answered: {decision:?}");
    decision
}

/// A process that does jobs until it is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: process::Child,
    jobs: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// A process with a store on the server at this address, which writes its admissions to this file.
    pub(crate) fn start(address: &str, meter: &Path) -> Self {
        let program = env::current_exe().expect("the program of this test");
        let mut process = Command::new(program)
            .args([ROLE, "--exact", "--nocapture"])
            .env(ADDRESS, address)
            .env(METER, meter)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program of this test runs again");
        let jobs = process.stdin.take();
        let answers = process.stdout.take().expect("it is piped");
        Self {
            process,
            jobs,
            answers: BufReader::new(answers),
        }
    }

    /// Gives it a job, and does not wait for it.
    pub(crate) fn begin(&mut self, job: &Job) {
        let jobs = self.jobs.as_mut().expect("it is piped");
        writeln!(jobs, "{job}").expect("the process reads");
    }

    /// The units admitted in the job that was begun last; `None` if the process has died.
    pub(crate) fn finish(&mut self) -> Option<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.answers.read_line(&mut line);
            if !length.is_ok_and(|length| length > 0) {
                return None;
            }
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim().parse().ok();
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Does jobs until there are no more, if this process was started for that.
pub(crate) fn play() {
    let (Ok(address), Ok(meter)) = (env::var(ADDRESS), env::var(METER)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let store = runtime.block_on(patient_store(&address));
    // The end of the input is also that of the process which gave the jobs.
    for line in io::stdin().lines().map_while(Result::ok) {
        let job: Job = line.parse().expect("a job");
        let admitted = runtime.block_on(run(&job, &store, Path::new(&meter)));
        writeln!(io::stdout(), "{ANSWER}{admitted}").expect("somebody reads");
    }
}

async fn run(job: &Job, store: &RedisStore, meter: &Path) -> u64 {
    let limiter = job.limiter(store);
    let admitted = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..job.tasks {
        let (limiter, job, admitted) = (limiter.clone(), job.clone(), Arc::clone(&admitted));
        let meter = OpenOptions::new().append(true).open(meter);
        let mut meter = meter.expect("the meter is there");
        tasks.spawn(async move {
            for attempt in 0..job.attempts {
                let checks = job.checks(&limiter, task + attempt);
                if !ask(&limiter, &checks).await.is_allowed() {
                    continue;
                }
                // One byte at the end of a file is written whole, and stays when the process dies.
                meter.write_all(b".").expect("the meter is written");
                let before = admitted.fetch_add(1, Ordering::SeqCst);
                if before + 1 == job.dies_after {
                    let own = process::id().to_string();
                    let _ = Command::new("kill").args(["-9", &own]).status();
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a task asks to the end");
    }
    admitted.load(Ordering::SeqCst)
}
