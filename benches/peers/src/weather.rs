//! The gRPC service that is called.

use tonic::{Request, Response, Status};

/// What the build made of the service's description.
pub(crate) mod v1 {
    #![expect(unreachable_pub, reason = "generated")]
    tonic::include_proto!("weather.v1");
}

use v1::{City, Report, weather_server::Weather};

/// It is 20 degrees everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mild;

/// The city of this name.
pub(crate) fn city(name: &str) -> City {
    City { name: name.into() }
}

#[tonic::async_trait]
impl Weather for Mild {
    async fn current(&self, city: Request<City>) -> Result<Response<Report>, Status> {
        let city = city.into_inner().name;
        Ok(Response::new(Report { city, celsius: 20 }))
    }
}
