//! What a process does that was started for a job.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};
use tollgate_core::{Check, Decision, Key, Limiter, Outcome, Source};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::process::{self, Process};

use crate::{
    admission::{Admission, Book},
    calls::Counts,
    clock,
    load::Load,
};

/// The namespace of all processes.
pub(crate) const NAMESPACE: &str = "prefilter";

/// A store that nothing but requests speaks for: so that calls can be counted.
pub(crate) async fn store(address: &str, deadline: Duration) -> RedisStore {
    let store = RedisStore::builder(address, NAMESPACE, Keys::plain())
        .without_heartbeats()
        .deadline(deadline)
        .connect()
        .expect("a valid address");
    store.connected().await;
    store
}

/// The file whose presence ends a job.
pub(crate) fn end_of(book: &Path) -> PathBuf {
    book.with_extension("end")
}

/// A process with a store on the server at this address, which gives a call up after this deadline, and writes its admissions
/// to this file. It replies once it is connected, and to each job.
pub(crate) fn start(address: &str, book: &Path, deadline: Duration) -> Process {
    Process::start(&(address, book, deadline))
}

/// Does jobs until there are no more, if this process was started for that.
pub(crate) fn play() {
    let Some((address, book, deadline)) = process::role::<(String, PathBuf, Duration)>() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let store = runtime.block_on(store(&address, deadline));
    process::reply(&());
    let mut last: Option<(Load, Limiter)> = None;
    for load in process::loads::<Load>() {
        let same = last
            .take()
            .filter(|(last, _)| last.rule_loads == load.rule_loads);
        // What the limiter of the last job holds is spent in this one.
        let limiter = match same {
            Some((_, limiter)) => limiter,
            None => {
                let _inside = runtime.enter();
                load.limiter(&store)
            }
        };
        process::reply(&runtime.block_on(run(&load, &limiter, &book)));
        last = Some((load, limiter));
    }
}

async fn run(load: &Load, limiter: &Limiter, book: &Path) -> Counts {
    let until = clock::now() + load.lasts.as_micros() as u64;
    let mut tasks = JoinSet::new();
    for _ in 0..load.tasks {
        tasks.spawn(work(load.clone(), limiter.clone(), book.to_owned(), until));
    }
    let counts = tasks.join_all().await.into_iter();
    counts.fold(Counts::default(), Counts::plus)
}

async fn work(load: Load, limiter: Limiter, book: PathBuf, until: u64) -> Counts {
    let end = end_of(&book);
    let mut book = Book::open(&book);
    let mut counts = Counts::default();
    while clock::now() < until && !end.exists() {
        for _ in 0..load.at_once {
            let key = fastrand::u64(..load.keys.max(1));
            let checks = checks(&load, &limiter, key);
            let earliest = clock::now();
            let decision = limiter.acquire(&checks).await;
            let latest = clock::now();
            counts = counts.plus(count(&decision));
            if decision.is_allowed() {
                let admissions = (0..).zip(&checks).map(|(rule, check)| Admission {
                    rule,
                    key,
                    units: check.cost(),
                    earliest,
                    latest,
                });
                book.write(&admissions.collect::<Vec<_>>());
            }
        }
        sleep(load.pause).await;
    }
    counts
}

pub(crate) fn checks(load: &Load, limiter: &Limiter, key: u64) -> Vec<Check> {
    let key = Key::of([format!("client-{key}")]);
    let rule_loads = load.rule_loads.iter();
    rule_loads
        .map(|rule_load| {
            let check = limiter
                .check(&rule_load.name, &key)
                .expect("the rule is there");
            check.with_cost(fastrand::u64(1..=rule_load.costs.max(1)))
        })
        .collect()
}

fn count(decision: &Decision) -> Counts {
    let by = |source: Source| {
        let verdicts = decision.verdicts().iter();
        let layout = verdicts.filter(|it| it.outcome() != Outcome::NotDecided);
        layout.filter(|it| it.source() == source).count() as u64
    };
    Counts {
        layout: 1,
        allowed: u64::from(decision.is_allowed()),
        store: by(Source::Store),
        deny_cached: by(Source::DenyCache),
        lease: by(Source::Lease),
        eventual: by(Source::Local),
        fallback: by(Source::Fallback),
    }
}
