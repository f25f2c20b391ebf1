//! Requests at a constant rate, whatever the answers: clients do not slow down for a service that is overloaded.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Body;
use http::{Request, StatusCode};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

/// How long a client waits for its response.
const PATIENCE: Duration = Duration::from_millis(500);

/// What became of the requests, by class.
#[derive(Clone, Default)]
pub(crate) struct Outcome {
    sent: [u32; 4],
    /// Served while the client waited.
    pub(crate) served: [u32; 4],
    pub(crate) shed: [u32; 4],
    /// Of P0.
    latencies: Vec<Duration>,
}

impl Outcome {
    /// In percent of what was sent.
    pub(crate) fn part(&self, of: &[u32; 4], class: usize) -> f64 {
        f64::from(of[class]) * 100.0 / f64::from(self.sent[class].max(1))
    }

    /// In milliseconds.
    pub(crate) fn p99_of_p0(&self) -> f64 {
        let mut latencies = self.latencies.clone();
        latencies.sort();
        let latency = latencies.get(latencies.len() * 99 / 100);
        latency.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1_000.0)
    }
}

/// Sends `rate` requests a second. A part of them is P0, the others are of the other classes in turn.
pub(crate) async fn send(to: SocketAddr, rate: f64, critical: f64, seconds: f64) -> Outcome {
    let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let began = Instant::now();
    let (mut requests, mut due) = (JoinSet::new(), 0.0);
    for number in 0..(rate * seconds) as u32 {
        sleep_until(began + Duration::from_secs_f64(f64::from(number) / rate)).await;
        due += critical;
        let class = if due >= 1.0 {
            due -= 1.0;
            0
        } else {
            1 + number as usize % 3
        };
        let (client, outcome) = (client.clone(), Arc::clone(&outcome));
        requests.spawn(async move {
            let request = Request::get(format!("http://{to}/p{class}"))
                .body(Body::empty())
                .expect("a request");
            let sent = Instant::now();
            let answer = timeout(PATIENCE, client.request(request)).await;
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.sent[class] += 1;
            match answer.map(|answer| answer.map(|response| response.status())) {
                Ok(Ok(StatusCode::OK)) => {
                    outcome.served[class] += 1;
                    if class == 0 {
                        outcome.latencies.push(sent.elapsed());
                    }
                }
                Ok(Ok(_)) => outcome.shed[class] += 1,
                // Its client has left, or no connection was to be had.
                Err(_) | Ok(Err(_)) => {}
            }
        });
    }
    while requests.join_next().await.is_some() {}
    let outcome = Arc::into_inner(outcome).unwrap_or_default();
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}
