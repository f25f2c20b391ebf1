//! The example `flag_source`, with a flag service of the test.

use std::{
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use crate::process::{Process, program};
use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use tollgate_tests::server::Server;

/// What the flag service says: a status, a revision and a limit.
type Flag = Arc<Mutex<(StatusCode, u64, &'static str)>>;

fn answer(flag: &Flag) -> Response {
    let (status, revision, limit) = *flag.lock().expect("whole");
    let text = format!("version: 1\nrules: [{{ name: api, limit: {limit}, by: client_ip }}]\n");
    (status, [("x-revision", revision.to_string())], text).into_response()
}

/// The quota that the service tells.
fn limit(process: &Process) -> String {
    let answer = process.request("GET", "/", "");
    let policy = answer.header("ratelimit-policy");
    policy.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_follows_a_flag_service() {
    let flag: Flag = Arc::new(Mutex::new((StatusCode::OK, 3, "60/min")));
    let served = Arc::clone(&flag);
    let service = Router::new().route("/flags/limits", get(async move || answer(&served)));
    let server = Server::start(service).await;
    let url = format!("http://{}/flags/limits", server.address());
    let follows = move || {
        let settings = [("FLAG_URL", &*url)];
        let process = Process::start("flag_source", Path::new("."), &settings);
        assert!(
            process
                .request("GET", "/rules", "")
                .body
                .contains("revision 3,")
        );
        assert_eq!(limit(&process), r#""api";q=60;w=60"#);

        let set = |status, revision, limit| {
            *flag.lock().expect("whole") = (status, revision, limit);
        };
        set(StatusCode::OK, 4, "90/min");
        process.until("/rules", |status| status.contains("revision 4,"));
        assert_eq!(limit(&process), r#""api";q=90;w=60"#);
        // It fails, and the rules stay as they are.
        set(StatusCode::BAD_GATEWAY, 5, "1/min");
        process.until("/rules", |status| {
            status.contains("answers 502 Bad Gateway")
        });
        assert_eq!(limit(&process), r#""api";q=90;w=60"#);

        // Without its rules a service does not start.
        let mut other = Command::new(program("flag_source"));
        let output = other.env("FLAG_URL", &url).env("PORT", "0").output();
        let output = output.expect("it was built");
        assert!(!output.status.success(), "{output:?}");
    };
    let followed = tokio::task::spawn_blocking(follows);
    followed.await.expect("the test passes");
}
