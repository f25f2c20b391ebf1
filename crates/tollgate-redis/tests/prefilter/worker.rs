//! What a process does that was started for a job.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};
use tollgate_core::Limiter;
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::process::{self, Process};

use crate::{
    admission::{Admission, Book},
    clock,
    load::Load,
};

const NAMESPACE: &str = "prefilter";

const TASKS: usize = 2;

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
    for load in process::loads::<Load>() {
        runtime.block_on(async {
            let limiter = load.limiter(&store);
            let mut tasks = JoinSet::new();
            for _ in 0..TASKS {
                tasks.spawn(work(load.pause, limiter.clone(), book.clone()));
            }
            tasks.join_all().await;
        });
        process::reply(&());
    }
}

async fn work(pause: Duration, limiter: Limiter, path: PathBuf) {
    let end = end_of(&path);
    let mut book = Book::open(&path);
    let rule = limiter.rules().rules()[0].name();
    let check = limiter.check(rule, &tollgate_core::Key::of("client"));
    let check = [check.expect("the rule is there")];
    while !end.exists() {
        let earliest = clock::now();
        let decision = limiter.acquire(&check).await;
        let latest = clock::now();
        if decision.is_allowed() {
            book.write(Admission { earliest, latest });
        }
        sleep(pause).await;
    }
}
