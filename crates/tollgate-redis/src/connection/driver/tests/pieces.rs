//! What is written in one piece.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::connection::stream::Transport;

/// A server that takes everything and says nothing, and how many commands were in each piece.
#[derive(Default)]
struct Pieces {
    pieces: Arc<Mutex<Vec<usize>>>,
    /// What another thread does when everything was written.
    meanwhile: Meanwhile,
}

type Meanwhile = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

impl Transport for Pieces {}

impl AsyncRead for Pieces {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let text = str::from_utf8(bytes).unwrap();
        self.pieces.lock().unwrap().push(commands(text).len());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn driver(stream: Pieces, shared: &Arc<NodeState>) -> Driver {
    Driver::new(Box::new(stream), Arc::clone(shared))
}

/// Calls with these keys, in the queue.
fn push(shared: &NodeState, keys: &[&str]) -> Vec<AnswerFuture> {
    let deadline = Instant::now() + shared.options.deadline;
    let calls = keys.iter().map(|key| {
        let command = Command::new(&SCRIPT, &[key], &[""; 0]);
        shared.queue.push(Arc::new(command), deadline, false)
    });
    calls.collect()
}

async fn poll_once(driver: Pin<&mut Driver>) {
    let mut driver = driver;
    let poll = poll_fn(|cx| Poll::Ready(driver.as_mut().poll(cx)));
    assert!(poll.await.is_pending());
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_given_the_first_command_alone_and_a_busy_one_all_at_once() {
    let stream = Pieces::default();
    let pieces = Arc::clone(&stream.pieces);
    let shared = NodeState::new(NodeOptions::default());
    let mut driver = pin!(driver(stream, &shared));
    let mut calls = Vec::new();
    for _ in 0..2 {
        calls.extend(push(&shared, &["a", "b", "c"]));
        poll_once(driver.as_mut()).await;
    }
    assert_eq!(*pieces.lock().unwrap(), [1, 2, 3]);
}

/// Just before the driver sleeps, while it has no waker in the queue: on a new connection, or because the call that has taken it
/// was dropped, so that no answer comes either.
#[tokio::test(start_paused = true)]
async fn a_call_that_comes_as_the_driver_falls_asleep_is_sent() {
    for is_new in [true, false] {
        let shared = NodeState::new(NodeOptions::default());
        let stream = Pieces::default();
        let (pieces, meanwhile) = (Arc::clone(&stream.pieces), Arc::clone(&stream.meanwhile));
        let mut driver = pin!(driver(stream, &shared));
        if !is_new {
            poll_once(driver.as_mut()).await;
            drop(push(&shared, &["dropped"]));
        }
        let calls = Arc::new(Mutex::new(Vec::new()));
        let comes = {
            let calls = Arc::clone(&calls);
            move || calls.lock().unwrap().extend(push(&shared, &["a"]))
        };
        *meanwhile.lock().unwrap() = Some(Box::new(comes));
        poll_once(driver.as_mut()).await;
        assert_eq!(*pieces.lock().unwrap(), [1], "new: {is_new}");
    }
}

/// Asks for an answer when it is dropped, with the stream that has it.
struct AtClose(AnswerFuture, Arc<AtomicBool>);

impl Drop for AtClose {
    fn drop(&mut self) {
        let answer = Pin::new(&mut self.0).poll(&mut Context::from_waker(Waker::noop()));
        self.1.store(answer.is_pending(), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_before_its_calls_are_answered() {
    let shared = NodeState::new(NodeOptions::default());
    let is_first = Arc::new(AtomicBool::new(false));
    let call = push(&shared, &["a"]).remove(0);
    let at_close = AtClose(call, Arc::clone(&is_first));
    let stream = Pieces::default();
    *stream.meanwhile.lock().unwrap() = Some(Box::new(move || drop(at_close)));
    drop(driver(stream, &shared));
    assert!(is_first.load(Ordering::Relaxed));
}
