//! Calls of each kind.

use tollgate_tests::weather::{Mild, city, report};
use tonic::Code;

use crate::{few, layer, serve, used_up};

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
    let mut reports = client.ask(cities).await.expect("both ways").into_inner();
    let mut asked = Vec::new();
    while let Some(report) = reports.message().await.expect("a whole stream") {
        asked.push(report.city);
    }
    assert_eq!(asked, ["Oslo", "Bergen"]);
    assert_eq!((service.calls(), service.messages()), (4, 52));
}

#[tokio::test]
async fn a_denied_stream_ends_before_it_begins() {
    let service = Mild::default();
    let server = serve(used_up(), &service).await;
    let mut client = server.client().await;
    let denied = Code::ResourceExhausted;

    let watched = client.watch(city("Oslo")).await;
    assert_eq!(watched.expect_err("denied").code(), denied);
    let recorded = client.record(tokio_stream::pending()).await;
    assert_eq!(recorded.expect_err("denied").code(), denied);
    let asked = client.ask(tokio_stream::pending()).await;
    assert_eq!(asked.expect_err("denied").code(), denied);
    assert_eq!((service.calls(), service.messages()), (0, 0));
}
