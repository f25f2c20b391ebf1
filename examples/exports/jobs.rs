//! Exports that run in another process. The service reserves a slot and as many rows as an export may have, and puts the reservation
//! into a folder, which is the queue. The worker exports what is there, and settles the rows that it were.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{Router, extract::State, routing::post};
use http::{StatusCode, Uri};
use tokio::time::sleep;
use tollgate::{
    Admission, DAY, Limiter, MINUTE, Missing, Quota, RateLimitLayer, Rule, RuleError, SECOND,
    Store, store::StoreErrorKind,
};

use crate::tenant;

/// How long a reservation stays open while no worker says that it goes on.
const TERM: Duration = MINUTE;
/// How long the worker takes for so many rows.
const CHUNK: (u64, Duration) = (500, Duration::from_millis(200));

/// Those of the service and of the worker.
fn rules() -> [Rule; 2] {
    [
        Rule::new("jobs-at-once", Quota::concurrent(2)),
        Rule::new("rows-per-day", Quota::sliding_window(10_000, DAY)).unit("rows"),
    ]
}

/// `POST /jobs?rows=4000` reserves, `GET /jobs` says how many jobs wait.
pub(crate) fn routes(store: impl Store, queue: PathBuf) -> Result<Router, RuleError> {
    fs::create_dir_all(&queue).map_err(|error| {
        let kind = tollgate::error::RuleErrorKind::Store;
        RuleError::general(kind, format!("the folder {queue:?} of the queue: {error}"))
    })?;
    let [at_once, rows] = rules();
    let rows = rows.by(tenant()).cost_by(|head| rows_in(head.uri));
    let reject = Missing::Reject(StatusCode::UNAUTHORIZED);
    let limits = RateLimitLayer::new(
        store,
        [
            at_once.by(tenant()).when_missing(reject),
            rows.when_missing(reject),
        ],
    )?
    .attach_decision();
    let jobs = post(accept).get(waiting).route_layer(limits);
    Ok(Router::new().route("/jobs", jobs).with_state(queue))
}

/// What `?rows=4000` asks for.
fn rows_in(uri: &Uri) -> u64 {
    let rows = uri.query().and_then(|query| query.strip_prefix("rows="));
    rows.and_then(|rows| rows.parse().ok()).unwrap_or(0)
}

/// Units and slot leave with the job. Where it is not accepted they come back.
async fn accept(
    State(queue): State<PathBuf>,
    admission: Admission,
    uri: Uri,
) -> Result<(StatusCode, String), (StatusCode, String)> {
    let failed = |error: String| (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
    let ticket = admission.ticket().cancel_on_drop();
    let reservation = ticket.into_reservation(TERM).await;
    let reservation = reservation.map_err(|error| failed(error.to_string()))?;
    let number = waits(&queue).map_or(0, |jobs| jobs.len()) + 1;
    let text = reservation.to_string();
    // The worker sees it when it is complete. No other text ends like it.
    let draft = queue.join(&text[text.len() - 16..]);
    fs::write(&draft, format!("{} {text}", rows_in(&uri)))
        .and_then(|()| fs::rename(&draft, draft.with_extension("job")))
        .map_err(|error| failed(error.to_string()))?;
    Ok((StatusCode::ACCEPTED, format!("{number} jobs\n")))
}

async fn waiting(State(queue): State<PathBuf>) -> String {
    format!("{} jobs\n", waits(&queue).map_or(0, |jobs| jobs.len()))
}

/// The rows that were asked for, and the reservation.
fn read(job: &Path) -> Result<(u64, String), Box<dyn Error>> {
    let text = fs::read_to_string(job)?;
    let (rows, text) = text.split_once(' ').ok_or("a job without rows")?;
    Ok((rows.parse()?, text.to_owned()))
}

/// The jobs that are not done, the oldest first.
fn waits(queue: &Path) -> io::Result<Vec<PathBuf>> {
    let files = fs::read_dir(queue)?.map(|file| Ok(file?.path()));
    let files: io::Result<Vec<PathBuf>> = files.collect();
    let mut jobs = files?;
    jobs.retain(|file| file.extension().is_some_and(|it| it == "job"));
    jobs.sort_by_key(|file| file.metadata().and_then(|it| it.modified()).ok());
    Ok(jobs)
}

/// Does one job after the other. Killed, it begins with the one that it had: a job may run twice, and is settled once.
pub(crate) async fn work(store: impl Store, queue: &Path) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(store, rules())?;
    println!("working on {}", queue.display());
    loop {
        let jobs = waits(queue).unwrap_or_default();
        let Some(job) = jobs.first() else {
            sleep(SECOND / 10).await;
            continue;
        };
        let (rows, text) = read(job)?;
        match export(&limiter, &text, rows / 4).await {
            Ok(rows) => println!("exported {rows} rows"),
            Err(error) => println!("not settled: {error}"),
        }
        fs::remove_file(job)?;
    }
}

/// Exports so many rows: a quarter of those that were asked for are there.
async fn export(limiter: &Limiter, text: &str, rows: u64) -> Result<u64, Box<dyn Error>> {
    let ticket = limiter.redeem(&text.parse()?)?;
    let mut done = 0;
    while done < rows {
        sleep(CHUNK.1).await;
        done = rows.min(done + CHUNK.0);
        match ticket.extend(TERM).await {
            Err(gone) if gone.kind() == StoreErrorKind::Gone => return Err(gone.into()),
            // One that has failed may be said again with the next rows.
            _ => {}
        }
    }
    loop {
        match ticket.settle(rows).await {
            Err(failed) if failed.is_transient() => sleep(SECOND / 10).await,
            settled => return Ok(settled.map(|()| rows)?),
        }
    }
}
