//! The source that a user writes, with a flag service on the loopback interface.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use tollgate_examples::flag_source::FlagSource;
use tollgate_rules::{Bindings, LiveRules};
use tollgate_tests::server::Server;

/// What the flag service says: a status, a revision and a limit.
type Flag = Arc<Mutex<(StatusCode, u64, &'static str)>>;

fn answer(flag: &Flag) -> Response {
    let (status, revision, limit) = *flag.lock().expect("whole");
    let text = format!("version: 1\nrules: [{{ name: api, limit: {limit}, by: client_ip }}]\n");
    (status, [("x-revision", revision.to_string())], text).into_response()
}

async fn until(rules: &LiveRules, holds: impl Fn(&LiveRules) -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
    let begin = Instant::now();
    while !holds(rules) {
        let is_late = begin.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "{}", rules.status());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_service_follows_a_flag_service() {
    let flag: Flag = Arc::new(Mutex::new((StatusCode::OK, 3, "60/min")));
    let served = Arc::clone(&flag);
    let service = Router::new().route("/flags/limits", get(async move || answer(&served)));
    let server = Server::start(service).await;
    let address = format!("http://{}/flags/limits", server.address());
    let source = || FlagSource::new(address.parse().expect("an address"));
    let rules = LiveRules::follow(source(), Bindings::new())
        .await
        .expect("valid");
    let limit = |rules: &LiveRules| rules.document().limiter_rules()[0].quota().limit();
    assert_eq!((rules.status().revision(), limit(&rules)), (3, 60));

    *flag.lock().expect("whole") = (StatusCode::OK, 4, "90/min");
    until(&rules, |rules| rules.status().revision() == 4).await;
    assert_eq!(limit(&rules), 90);
    // It fails, and the rules stay as they are.
    *flag.lock().expect("whole") = (StatusCode::BAD_GATEWAY, 5, "1/min");
    until(&rules, |rules| rules.status().source_error().is_some()).await;
    let status = rules.status().to_string();
    assert!(status.contains("answers 502 Bad Gateway"), "{status}");
    assert_eq!(limit(&rules), 90);
    let refused = LiveRules::follow(source(), Bindings::new()).await;
    assert!(
        refused.is_err(),
        "a service without its rules does not start"
    );
}
