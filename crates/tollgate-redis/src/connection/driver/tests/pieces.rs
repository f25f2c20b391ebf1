//! What is written in one piece.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Mutex,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

/// A server that takes everything and says nothing, and how many commands were in each piece.
#[derive(Default)]
struct Pieces(Arc<Mutex<Vec<usize>>>);

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
        self.0.lock().unwrap().push(commands(text).len());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_given_the_first_command_alone_and_a_busy_one_all_at_once() {
    let options = NodeOptions::default();
    let stream = Pieces::default();
    let pieces = Arc::clone(&stream.0);
    let queue = Arc::new(Queue::new(options.waiting));
    let breaker = Breaker::new(BreakerOptions::default(), 1, EventSink::default());
    let mut driver = pin!(Driver::new(
        stream,
        Arc::clone(&queue),
        Arc::new(breaker),
        &options
    ));
    let script = Arc::new(Script::new("return 1"));
    let mut calls = Vec::new();
    for _ in 0..2 {
        for key in ["a", "b", "c"] {
            let deadline = Instant::now() + options.deadline;
            let (waiting, call) = Waiting::new(Request::new(&script, &[key], &[]), deadline);
            queue.push(waiting).unwrap();
            calls.push(call);
        }
        let poll = poll_fn(|cx| Poll::Ready(driver.as_mut().poll(cx)));
        assert!(poll.await.is_pending());
    }
    assert_eq!(*pieces.lock().unwrap(), [1, 2, 3]);
}
