//! What a handler of tonic can read and ask.

use tollgate::{Admission, Key, RequestRule};
use tollgate_tests::{
    app::{all, layer, per_minute},
    grpc::GrpcServer,
    weather::{
        Mild, city, report,
        v1::{
            City, Report, Summary,
            weather_server::{Weather, WeatherServer},
        },
    },
};
use tonic::{Code, Request, Response, Status, Streaming, transport::Server};
use tonic_types::StatusExt;

/// Asks for the city that the message names.
struct Exchange {
    rule: &'static str,
}

#[tonic::async_trait]
impl Weather for Exchange {
    async fn current(&self, call: Request<City>) -> Result<Response<Report>, Status> {
        let admission = call
            .extensions()
            .get::<Admission>()
            .expect("it is attached")
            .clone();
        let name = call.into_inner().name;
        let _ = admission.acquire(self.rule, &Key::of([&*name])).await?;
        Ok(Response::new(report(&name)))
    }

    type WatchStream = <Mild as Weather>::WatchStream;

    async fn watch(&self, _: Request<City>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn record(&self, _: Request<Streaming<Report>>) -> Result<Response<Summary>, Status> {
        Err(Status::unimplemented(""))
    }

    type ExchangeStream = Self::WatchStream;

    async fn exchange(
        &self,
        _: Request<Streaming<City>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

fn per_city() -> RequestRule {
    per_minute("per-city", 1).by_handler()
}

async fn serve(service: Exchange) -> GrpcServer {
    let layer = layer([all(per_minute("all", 9)), per_city()]);
    let mut server = Server::builder().layer(layer.attach_decision());
    GrpcServer::start(server.add_service(WeatherServer::new(service))).await
}

#[tokio::test]
async fn a_denial_in_a_handler_is_the_layers() {
    let server = serve(Exchange { rule: "per-city" }).await;
    let mut client = server.client().await;
    let first = client.current(city("Oslo")).await.expect("the first");
    assert_eq!(
        first.metadata().get("ratelimit").expect("both rules"),
        "\"all\";r=8;t=60, \"per-city\";r=0;t=60"
    );
    client.current(city("Bergen")).await.expect("another city");

    let status = client.current(city("Oslo")).await.expect_err("the second");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let failure = status.get_details_quota_failure().expect("details");
    assert_eq!(failure.violations[0].quota_id, "per-city");
    let metadata = status.metadata();
    assert_eq!(
        metadata.get("grpc-retry-pushback-ms").expect("pushback"),
        "60000"
    );
    assert_eq!(metadata.get("retry-after").expect("a wait"), "60");
    assert_eq!(
        metadata.get("ratelimit").expect("both rules"),
        "\"all\";r=6;t=60, \"per-city\";r=0;t=60"
    );
}

#[tokio::test]
async fn an_unknown_rule_is_an_internal_error() {
    let server = serve(Exchange { rule: "misspelt" }).await;
    let answer = server.client().await.current(city("Oslo")).await;
    let status = answer.expect_err("no such rule");
    assert_eq!(status.code(), Code::Internal);
    // Clients do not learn how the service is set up.
    assert!(!status.message().contains("misspelt"), "{status}");
}
