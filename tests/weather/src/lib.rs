//! A gRPC service with one method of each kind, which counts its calls and messages.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// What the build made of `weather.proto`.
#[expect(missing_docs, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("weather.v1");
}

use v1::{City, Report, Summary, weather_server::Weather};

/// It is 20 degrees everywhere.
#[derive(Clone, Debug, Default)]
pub struct Mild {
    calls: Arc<AtomicU64>,
    messages: Arc<AtomicU64>,
}

impl Mild {
    /// The calls that were begun.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The messages that were read from streams of clients.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::SeqCst)
    }

    fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

/// The report on a city.
#[must_use]
pub fn report(city: &str) -> Report {
    Report {
        city: city.to_owned(),
        celsius: 20,
    }
}

/// The city of this name.
#[must_use]
pub fn city(name: &str) -> City {
    City {
        name: name.to_owned(),
    }
}

type Reports = Pin<Box<dyn Stream<Item = Result<Report, Status>> + Send>>;

#[tonic::async_trait]
impl Weather for Mild {
    async fn current(&self, city: Request<City>) -> Result<Response<Report>, Status> {
        self.called();
        Ok(Response::new(report(&city.get_ref().name)))
    }

    type WatchStream = Reports;

    /// Three reports.
    async fn watch(&self, city: Request<City>) -> Result<Response<Reports>, Status> {
        self.called();
        let name = city.into_inner().name;
        let reports = (0..3).map(move |_| Ok(report(&name)));
        Ok(Response::new(Box::pin(tokio_stream::iter(reports))))
    }

    async fn record(
        &self,
        reports: Request<Streaming<Report>>,
    ) -> Result<Response<Summary>, Status> {
        self.called();
        let mut reports = reports.into_inner();
        let mut summary = Summary::default();
        while let Some(_report) = reports.message().await? {
            self.messages.fetch_add(1, Ordering::SeqCst);
            summary.reports += 1;
        }
        Ok(Response::new(summary))
    }

    type ExchangeStream = Reports;

    async fn exchange(
        &self,
        cities: Request<Streaming<City>>,
    ) -> Result<Response<Reports>, Status> {
        self.called();
        let messages = Arc::clone(&self.messages);
        let reports = cities.into_inner().map(move |city| {
            let report = report(&city?.name);
            messages.fetch_add(1, Ordering::SeqCst);
            Ok(report)
        });
        Ok(Response::new(Box::pin(reports)))
    }
}
