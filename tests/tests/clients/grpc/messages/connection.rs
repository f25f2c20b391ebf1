//! What a stream that waits leaves of its connection.

use tokio::time::timeout;
use tokio_stream::StreamExt;
use tollgate::{
    HOUR, Quota, Rule, condition::path_under, key::constant, message::MessageLimitLayer,
};
use tollgate_tests::weather::{
    Mild, city,
    v1::{Report, weather_server::WeatherServer},
};
use tonic::transport::Server;

use crate::grpc::messages::{
    by_hand::still,
    served::{HANGS, listening},
};

#[tokio::test]
async fn a_waiting_stream_does_not_block_other_calls_if_its_window_is_small() {
    let rule = Rule::new("messages", Quota::gcra(1, HOUR))
        .by(constant("all"))
        .when(path_under("/weather.v1.Weather/Record"));
    let limits = MessageLimitLayer::new(still(), [rule]).expect("a valid rule");
    let weather = Mild::default();
    let router = Server::builder()
        .initial_stream_window_size(1 << 16)
        .initial_connection_window_size(1 << 20)
        .layer(limits.wait_up_to(2 * HOUR))
        .add_service(WeatherServer::new(weather.clone()));
    let served = listening(|incoming| router.serve_with_incoming(incoming)).await;

    // Twice what the connection holds; the second report waits, and with it all behind it.
    let long = Report {
        city: "x".repeat(1 << 19),
        celsius: 20,
    };
    let reports = tokio_stream::iter(vec![long; 4]).chain(tokio_stream::pending());
    let mut client = served.client.clone();
    let stream = tokio::spawn(async move { client.record(reports).await });
    // The first report was read, so that the others come as far as they may during these calls.
    let calls = async || {
        while weather.messages() == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            let current = served.client.clone().current(city("Oslo")).await;
            assert!(current.is_ok());
        }
    };
    timeout(HANGS, calls()).await.expect("it does not hang");
    stream.abort();
}
