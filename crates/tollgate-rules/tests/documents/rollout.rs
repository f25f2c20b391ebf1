//! Which clients a rule is enforced for, in every process.

use std::{
    env,
    io::{Write, stdout},
    process::{Command, Stdio},
};

use http::{Request, Response};
use tollgate::{MemoryStore, RateLimitLayer};
use tower::{Layer, Service, service_fn};

use crate::{client, one, toml};

const CLIENTS: u32 = 10_000;
/// The environment variable with the percentage that a process looks at.
const PERCENT: &str = "TOLLGATE_TEST_PERCENT";
/// Marks what a process says among the lines of the test harness.
const SAYS: &str = "tollgate: ";

/// The clients whose requests the rule counts.
async fn inside(percent: u32) -> Vec<u32> {
    let rollout = format!("rollout = {{ percent = {percent} }}");
    let document = toml(&one("\"header:x-api-key\"", &rollout)).expect("valid");
    let layer = RateLimitLayer::new(MemoryStore::new(), document.rules()).expect("valid rules");
    let mut service = layer.layer(service_fn(|_: Request<String>| async {
        Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    }));
    let mut inside = Vec::new();
    for n in 0..CLIENTS {
        let Ok(response) = service.call(client("/", &format!("customer-{n}"))).await;
        if response.headers().contains_key("ratelimit-policy") {
            inside.push(n);
        }
    }
    inside
}

/// Says who is in, if this process was started for that.
#[tokio::test]
async fn a_process_says_who_is_in() {
    let Ok(percent) = env::var(PERCENT) else {
        return;
    };
    let inside = inside(percent.parse().expect("a number")).await;
    let inside = serde_json::to_string(&inside).expect("numbers");
    writeln!(stdout(), "{SAYS}{inside}").expect("somebody reads");
}

/// What another process says, which has nothing in common with this one but the document.
fn inside_elsewhere(percent: u32) -> Vec<u32> {
    let program = env::current_exe().expect("the program of this test");
    let output = Command::new(program)
        .args([
            "rollout::a_process_says_who_is_in",
            "--exact",
            "--nocapture",
        ])
        .env(PERCENT, percent.to_string())
        .stdin(Stdio::null())
        .output()
        .expect("the program of this test runs again");
    let text = String::from_utf8(output.stdout).expect("text");
    let (_, says) = text.split_once(SAYS).expect("it says so");
    let line = says.lines().next().expect("a line");
    serde_json::from_str(line).expect("numbers")
}

#[tokio::test]
async fn the_same_clients_are_in_in_two_processes_and_after_a_restart() {
    let few = inside(5).await;
    assert!((400..=600).contains(&few.len()), "{}", few.len());
    let more = inside_elsewhere(20);
    assert!((1_850..=2_150).contains(&more.len()), "{}", more.len());
    assert!(few.iter().all(|n| more.contains(n)));
    // Another one, when that has ended.
    assert_eq!(inside_elsewhere(5), few);
}
