//! What servers of a cluster say, by servers that say it on purpose.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    task::{AbortHandle, JoinSet},
};

use crate::{
    connection::{
        error::{CallError, CallErrorKind},
        stream::memory,
    },
    internal_tests::connection::{bench::eventually, cluster_bench::ClusterBench},
};

/// A server that gives every call the same answer.
struct Fake {
    received: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
}

impl Fake {
    /// All hash slots are with the server at port `owner`. A call gets the line `answer`, or none if that is empty.
    fn start(listener: TcpListener, owner: u16, answer: String) -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let hash_slots = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{owner}\r\n");
        let ear = Arc::clone(&received);
        let say = Arc::new(move |words: &[&str]| match words {
            ["CLUSTER", "SLOTS"] => hash_slots.clone(),
            ["CLUSTER", ..] => "-ERR unknown command\r\n".to_owned(),
            words => {
                ear.lock().unwrap().push(words[0].to_owned());
                match words[0] {
                    "ASKING" => "+OK\r\n".to_owned(),
                    _ => answer.clone(),
                }
            }
        });
        let serve = async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(memory::serve(stream, say.clone()));
            }
        };
        let task = tokio::spawn(serve).abort_handle();
        Self { received, task }
    }

    /// The commands about keys, in their order.
    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A cluster that has learnt from the server at `port` that all hash slots are there.
async fn bench(port: u16) -> ClusterBench {
    let bench = ClusterBench::start_with(&format!("redis-cluster://127.0.0.1:{port}"), |options| {
        options.deadline = Duration::from_millis(500);
    });
    eventually("it is connected", || async {
        let error = bench.take("k").await.err();
        let missing = error.is_some_and(|error| error.to_string().contains("not connected"));
        (!missing).then_some(())
    })
    .await;
    bench
}

/// The owner of all hash slots says `first`, in which `PORT` is the port of another server, which says `second`. What becomes of
/// a call once both are connected, and what each has heard of it.
async fn redirected(
    first: &str,
    second: &str,
) -> (Result<i64, CallError>, Vec<String>, Vec<String>) {
    let ((one, port), (other, other_port)) = (listener().await, listener().await);
    let first = first.replace("PORT", &other_port.to_string());
    let second = second.replace("PORT", &port.to_string());
    let one = Fake::start(one, port, first);
    let other = Fake::start(other, port, second);
    let bench = bench(port).await;
    eventually("the other one is connected", || async {
        let error = bench.take("k").await.err();
        let missing = error.is_some_and(|error| error.to_string().contains("being connected"));
        (!missing && !other.received().is_empty()).then_some(())
    })
    .await;
    let before = [&one, &other].map(|fake| fake.received().len());
    let answer = bench.take("k").await;
    let [one, other] = [(one, before[0]), (other, before[1])]
        .map(|(fake, before)| fake.received().split_off(before));
    (answer, one, other)
}

#[tokio::test]
async fn servers_that_send_a_call_back_and_forth_are_asked_three_times_in_all() {
    let (answer, one, other) = redirected("-MOVED 1 :PORT\r\n", "-MOVED 1 :PORT\r\n").await;
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), CallErrorKind::Unavailable);
    assert!(error.to_string().contains("moves on and on"), "{error}");
    assert_eq!(one.len() + other.len(), 3);
}

#[tokio::test]
async fn a_script_that_is_brought_along_needs_its_own_asking() {
    let (answer, _, other) =
        redirected("-ASK 1 :PORT\r\n", "-NOSCRIPT No matching script.\r\n").await;
    assert_eq!(answer.unwrap_err().kind(), CallErrorKind::Unavailable);
    let brought = ["ASKING", "EVALSHA", "ASKING", "EVAL", "ASKING", "EVAL"];
    assert_eq!(other, brought);
}

#[tokio::test]
async fn a_call_that_is_sent_on_to_silence_ends_and_may_have_run() {
    let (answer, one, other) = redirected("-ASK 1 :PORT\r\n", "").await;
    assert_eq!(answer.unwrap_err().kind(), CallErrorKind::NoAnswer);
    assert_eq!((one.len(), other.len()), (1, 2));
}
