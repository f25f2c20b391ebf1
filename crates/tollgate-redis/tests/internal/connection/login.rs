//! Users and passwords.

use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    connection::{breaker_state::BreakerState, error::CallErrorKind, event::NodeEvent},
    internal_tests::connection::bench::{Bench, eventually},
};

fn url(server: &RedisServer, login: &str) -> String {
    format!("redis://{login}@127.0.0.1:{}", server.port())
}

#[tokio::test]
async fn a_wrong_password_is_a_mistake_that_is_named_and_recovers_when_the_server_learns_it() {
    let server = RedisServer::start(&["--requirepass", "old"]).await;
    let bench = Bench::start(&url(&server, ":new"));
    let refused = |event: &NodeEvent| matches!(event, NodeEvent::NotConnected(_, why) if why.contains("WRONGPASS"));
    bench.happens("the password is refused", refused).await;
    let error = bench.take("k").await.unwrap_err();
    // Also when the breaker has opened in the meantime the call did not run.
    assert!(matches!(
        error.kind(),
        CallErrorKind::Misconfigured | CallErrorKind::Unavailable
    ));
    assert!(!format!("{:?}", bench.events()).contains("new"));
    let rotate: &[&[&str]] = &[&["AUTH", "old"], &["CONFIG", "SET", "requirepass", "new"]];
    server.commands(rotate).await;
    bench.is_well().await;
}

#[tokio::test]
async fn without_the_right_to_run_scripts_calls_are_misconfigured_and_the_breaker_stays_closed() {
    let server = RedisServer::start(&[]).await;
    server
        .command(&[
            "ACL",
            "SETUSER",
            "rl",
            "on",
            ">pass",
            "~*",
            "+@all",
            "-@scripting",
        ])
        .await;
    let bench = Bench::patient(&url(&server, "rl:pass"));
    let error = eventually("a call is refused", || async {
        let error = bench.take("k").await.err()?;
        error.to_string().contains("NOPERM").then_some(error)
    })
    .await;
    assert_eq!(error.kind(), CallErrorKind::Misconfigured);
    for _ in 0..50 {
        assert_eq!(bench.fails("k").await, CallErrorKind::Misconfigured);
    }
    assert_eq!(bench.node.breaker(), BreakerState::Closed);
    server
        .command(&["ACL", "SETUSER", "rl", "+@scripting"])
        .await;
    bench.take("k").await.unwrap();
}

#[tokio::test]
async fn a_user_with_the_few_rights_that_are_needed_is_enough() {
    let server = RedisServer::start(&[]).await;
    let user = "ACL SETUSER rl on >pass ~limits:* ~{tests}:probe:* resetchannels -@all \
                +hello +auth +select +evalsha +eval +incrby +set";
    server
        .command(&user.split_whitespace().collect::<Vec<_>>())
        .await;
    let bench = Bench::start(&format!("{}/2", url(&server, "rl:pass")));
    assert_eq!(bench.recovers("limits:k").await, 1);
    let answer = server
        .commands(&[&["SELECT", "2"], &["GET", "limits:k"]])
        .await;
    assert_eq!(answer, "+OK\r\n$1\r\n1\r\n");
}

#[tokio::test]
async fn a_probe_that_may_not_write_its_key_keeps_no_request_from_the_server() {
    let mut server = RedisServer::start(&[]).await;
    let user = ["ACL", "SETUSER", "rl", "on", ">pass", "~limits:*", "+@all"];
    server.command(&user).await;
    let bench = Bench::start(&url(&server, "rl:pass"));
    bench.recovers("limits:k").await;
    server.kill();
    eventually("the breaker opens", || async {
        (bench.node.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    server.restart().await;
    server.command(&user).await;
    eventually("the breaker is closed", || async {
        let _ = bench.take("limits:k").await;
        (bench.node.breaker() == BreakerState::Closed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_without_protocol_3_is_spoken_to_in_protocol_2() {
    let args = ["--rename-command", "HELLO", "", "--requirepass", "pass"];
    let server = RedisServer::start(&args).await;
    for login in [":pass", "default:pass"] {
        let bench = Bench::start(&url(&server, login));
        bench.recovers("k").await;
    }
}
