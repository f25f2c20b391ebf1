//! Requests at random, and what became of them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use http::{Request, StatusCode};
use tokio::{
    runtime::Builder,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tollgate::shed::Priority;
use tower::ServiceExt;

use crate::overload::service::{PERMITS, Stack, front};

/// How long a request is worked on, on average.
const WORK: Duration = Duration::from_millis(50);
/// How long a client waits for its response.
const PATIENCE: Duration = Duration::from_millis(500);

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// What stands in front of the service.
    pub stack: Stack,
    /// The requests that come, as a multiple of what can be served.
    pub load: f64,
    /// How long they come.
    pub seconds: u32,
    /// Seconds from which and until which the work takes ten times as long.
    pub slow: Option<(u32, u32)>,
    /// The same seed draws the same requests.
    pub seed: u64,
}

/// What became of the requests, by class.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests that came.
    pub offered: [u32; 4],
    /// Requests that were served while their client waited.
    pub served: [u32; 4],
    /// Requests that were shed.
    pub shed: [u32; 4],
    /// When each request came and how long it took, of those that were served, in seconds, by class.
    pub latencies: [Vec<(f64, f64)>; 4],
}

impl Outcome {
    /// What was served in time, as a part of what could be served.
    #[must_use]
    pub fn useful(&self, scene: Scene) -> f64 {
        let could =
            PERMITS as f64 / WORK.as_secs_f64() * f64::from(scene.seconds) * scene.load.min(1.0);
        f64::from(self.served.iter().sum::<u32>()) / could
    }

    /// The latency within which 99 of 100 requests of a class were served, in milliseconds.
    pub fn p99(&self, class: Priority) -> f64 {
        let mut latencies: Vec<f64> = self.latencies[class as usize]
            .iter()
            .map(|it| it.1)
            .collect();
        latencies.sort_by(f64::total_cmp);
        let place = latencies.len() * 99 / 100;
        latencies
            .get(place)
            .map_or(f64::NAN, |latency| latency * 1_000.0)
    }

    /// The part of a class that was shed.
    #[must_use]
    pub fn shed_part(&self, class: Priority) -> f64 {
        f64::from(self.shed[class as usize]) / f64::from(self.offered[class as usize].max(1))
    }
}

impl Scene {
    /// Runs it on a clock of its own. P0 takes two fifths of what can be served; what is beyond that are the other classes, one as
    /// often as the next.
    ///
    /// # Panics
    ///
    /// If the runtime cannot be made.
    #[must_use]
    pub fn run(self) -> Outcome {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime
            .expect("a runtime of this thread")
            .block_on(self.requests())
    }

    async fn requests(self) -> Outcome {
        let began = Instant::now();
        let mut rng = Rng::with_seed(self.seed);
        let work = {
            let rng = Mutex::new(rng.fork());
            Arc::new(move || {
                let second = began.elapsed().as_secs_f64();
                let is_slow = self
                    .slow
                    .is_some_and(|(from, to)| second >= f64::from(from) && second < f64::from(to));
                let spread = 0.5 + rng.lock().expect("no draw panics").f64();
                WORK.mul_f64(if is_slow { 10.0 } else { 1.0 } * spread)
            })
        };
        let front = front(self.stack, work);
        let could = PERMITS as f64 / WORK.as_secs_f64();
        let critical = (0.4 / self.load).min(0.4);
        let outcome = Arc::new(Mutex::new(Outcome::default()));
        let mut requests = JoinSet::new();
        let mut at = 0.0;
        loop {
            at += -(1.0 - rng.f64()).ln() / (could * self.load);
            if at >= f64::from(self.seconds) {
                break;
            }
            sleep_until(began + Duration::from_secs_f64(at)).await;
            let class = if rng.f64() < critical {
                0
            } else {
                rng.usize(1..4)
            };
            let (front, outcome) = (front.clone(), Arc::clone(&outcome));
            requests.spawn(async move {
                let mut request = Request::new(());
                request.extensions_mut().insert(Priority::ALL[class]);
                let sent = Instant::now();
                let answer = timeout(PATIENCE, front.oneshot(request)).await;
                let mut outcome = outcome.lock().expect("no request panics");
                outcome.offered[class] += 1;
                match answer {
                    Ok(Ok(StatusCode::OK)) => {
                        outcome.served[class] += 1;
                        outcome.latencies[class].push((at, sent.elapsed().as_secs_f64()));
                    }
                    Ok(Ok(_)) => outcome.shed[class] += 1,
                    Err(_) => {}
                }
            });
        }
        while requests.join_next().await.is_some() {}
        Mutex::into_inner(Arc::into_inner(outcome).expect("all requests have ended"))
            .expect("no request panics")
    }
}
