//! Calls of each kind.

use tollgate_tests::{
    app::layer,
    weather::{Mild, city, report},
};

use crate::grpc::{few, serve};

#[tokio::test]
async fn a_call_counts_once_however_many_messages_it_has() {
    let service = Mild::default();
    let server = serve(layer([few(4)]), &service).await;
    let mut client = server.client().await;

    client.current(city("Oslo")).await.expect("unary");
    let mut reports = client
        .watch(city("Oslo"))
        .await
        .expect("from the server")
        .into_inner();
    let mut read = 0;
    while reports.message().await.expect("a whole stream").is_some() {
        read += 1;
    }
    assert_eq!(read, 3);
    let many = tokio_stream::iter((0..50).map(|_| report("Oslo")));
    let summary = client
        .record(many)
        .await
        .expect("from the client")
        .into_inner();
    assert_eq!(summary.reports, 50);
    let cities = tokio_stream::iter(["Oslo", "Bergen"].map(city));
    let mut reports = client
        .exchange(cities)
        .await
        .expect("both ways")
        .into_inner();
    let mut cities = Vec::new();
    while let Some(report) = reports.message().await.expect("a whole stream") {
        cities.push(report.city);
    }
    assert_eq!(cities, ["Oslo", "Bergen"]);
    assert_eq!((service.calls(), service.messages()), (4, 52));
}
