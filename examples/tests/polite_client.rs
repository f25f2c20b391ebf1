//! The polite client and its service over a socket.

use axum::body::Body;
use http::Request;
use tollgate_examples::polite::{limited, polite};
use tollgate_tests::server::Server;
use tower::ServiceExt;

#[tokio::test]
async fn a_polite_client_is_never_denied() {
    let server = Server::start(limited().expect("a valid rule")).await;
    let client = polite();
    for _ in 0..12 {
        let request = Request::get(format!("http://{}/", server.address()));
        let request = request.body(Body::empty()).unwrap();
        let answer = client.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    // The server's own word: a client that does not wait is denied at once.
    let mut hasty = Vec::new();
    for _ in 0..6 {
        hasty.push(server.get("/").await.status);
    }
    assert!(hasty.contains(&429), "{hasty:?}");
}
