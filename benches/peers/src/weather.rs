//! The gRPC service that is called: its unary method. None of the others is.

use std::pin::Pin;

use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

/// What the build made of the service's description.
pub(crate) mod v1 {
    #![expect(unreachable_pub, reason = "generated")]
    tonic::include_proto!("weather.v1");
}

use v1::{City, Report, Summary, weather_server::Weather};

/// It is 20 degrees everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mild;

/// The city of this name.
pub(crate) fn city(name: &str) -> City {
    City { name: name.into() }
}

type Reports = Pin<Box<dyn Stream<Item = Result<Report, Status>> + Send>>;

#[tonic::async_trait]
impl Weather for Mild {
    async fn current(&self, city: Request<City>) -> Result<Response<Report>, Status> {
        let city = city.into_inner().name;
        Ok(Response::new(Report { city, celsius: 20 }))
    }

    type WatchStream = Reports;

    async fn watch(&self, _: Request<City>) -> Result<Response<Reports>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    async fn record(&self, _: Request<Streaming<Report>>) -> Result<Response<Summary>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    type ExchangeStream = Reports;

    async fn exchange(&self, _: Request<Streaming<City>>) -> Result<Response<Reports>, Status> {
        Err(Status::unimplemented("not measured"))
    }
}
