//! The future of a connection.

use std::{
    future::Future,
    io, mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    time::{Instant, Sleep, sleep_until},
};

use crate::connection::{
    driver::backlog::{Backlog, Lost, LostKind, Results},
    node::NodeState,
    resp::decode,
    stream::Stream,
};

/// The future of a connection. It ends when the connection is of no use any more, and says why.
///
/// # Cancel safety
///
/// Dropping it closes the connection and answers every call: what was not written did not run, the rest may have.
pub(in crate::connection) struct Driver {
    stream: Stream,
    backlog: Backlog,
    silence: Duration,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// Up to where `out` is written first.
    first: usize,
    input: BytesMut,
    /// Fires at the first deadline, or when the server has been silent for too long; it may fire earlier, never later.
    timer: Pin<Box<Sleep>>,
    /// What it is set to.
    armed: Option<Instant>,
    /// When the server was last heard, or asked after everything was answered.
    last_received: Instant,
    was_of_use: bool,
}

/// How many bytes there is room for at each read.
const READ: usize = 8192;

impl Driver {
    pub(in crate::connection) fn new(stream: Stream, shared: Arc<NodeState>) -> Self {
        let now = Instant::now();
        Self {
            stream,
            silence: shared.options.silence(),
            backlog: Backlog::new(shared),
            out: Vec::new(),
            written: 0,
            first: 0,
            input: BytesMut::new(),
            timer: Box::pin(sleep_until(now)),
            armed: None,
            last_received: now,
            was_of_use: false,
        }
    }

    /// Whether the server answered a call, so that it is worth to come back soon.
    pub(in crate::connection) fn was_of_use(&self) -> bool {
        self.was_of_use
    }

    /// Whether there has been no call on the connection for so long.
    pub(in crate::connection) fn is_idle_for(&self, least: Duration) -> bool {
        self.backlog.is_idle() && self.last_received.elapsed() >= least
    }

    /// The error of the calls that are left when this is dropped.
    pub(in crate::connection) fn lose(&mut self, lost: Lost) {
        self.backlog.lost.get_or_insert(lost);
    }

    fn drive(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        let end = self.read(cx);
        self.record();
        end?;
        loop {
            self.write(cx)?;
            let waiting = self.backlog.shared.queue.poll_first(cx);
            if waiting.is_some() && self.is_written() && self.backlog.has_room() {
                // It has come since nothing was left to write. There may have been no waker that it could take.
                continue;
            }
            self.arm(waiting);
            if self.armed.is_none() || self.timer.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.armed = None;
            self.expire()?;
        }
    }

    /// Tells the breaker what calls have shown of the server.
    fn record(&mut self) {
        let Results { answered, failed } = mem::take(&mut self.backlog.results);
        self.was_of_use |= answered > 0;
        self.backlog.shared.breaker.record(answered, failed);
    }

    fn is_written(&self) -> bool {
        self.written == self.out.len()
    }

    /// Reads until there is nothing to read.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        loop {
            self.input.reserve(READ);
            // Nothing is lost when this future is dropped: it reads at once or not at all.
            match pin!(self.stream.read_buf(&mut self.input)).poll(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => _ = closed_if_zero(read)?,
            }
            self.last_received = Instant::now();
            self.receive()?;
        }
    }

    /// Hands out the answers that are there, also those behind one that ends the connection.
    fn receive(&mut self) -> Result<(), Lost> {
        let mut end = Ok(());
        loop {
            match decode(&self.input) {
                Ok(Some((reply, length))) => {
                    self.input.advance(length);
                    end = end.and(self.backlog.answer(reply, self.last_received));
                }
                Ok(None) => return end,
                Err(malformed) => return end.and(Err(Lost::other(malformed))),
            }
        }
    }

    /// Writes what waits. While a write is under way nothing is added to it, so that what comes in the meantime goes out
    /// together.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        loop {
            if self.is_written() {
                self.out.clear();
                self.written = 0;
                let was_owed = self.backlog.is_owed();
                self.backlog.fill(&mut self.out);
                if self.out.is_empty() {
                    // What is encrypted may be written and not have left. A socket has nothing to flush.
                    return match Pin::new(&mut self.stream).poll_flush(cx) {
                        Poll::Ready(flushed) => flushed.map_err(|error| failed(&error)),
                        Poll::Pending => Ok(()),
                    };
                }
                self.first = 0;
                if !was_owed {
                    self.last_received = Instant::now();
                    // What is written together is also answered together. A server that has nothing to do begins with one
                    // command, and its answers are read while it is at the next ones.
                    self.first = self.backlog.first_command();
                }
            }
            let end = if self.written < self.first {
                self.first
            } else {
                self.out.len()
            };
            let piece = &self.out[self.written..end];
            match Pin::new(&mut self.stream).poll_write(cx, piece) {
                Poll::Pending => return Ok(()),
                Poll::Ready(written) => {
                    let length = closed_if_zero(written)?;
                    self.written += length;
                    self.backlog.written += length as u64;
                }
            }
        }
    }

    /// Sets the timer, unless it is set to an earlier time anyway. `waiting` is the first deadline of what waits.
    fn arm(&mut self, waiting: Option<Instant>) {
        let silent = (self.backlog.is_owed()).then(|| self.last_received + self.silence);
        let deadlines = waiting.into_iter().chain(self.backlog.earliest);
        let next = deadlines.chain(silent).min();
        if let Some(at) = next.filter(|at| self.armed.is_none_or(|armed| *at < armed)) {
            self.timer.as_mut().reset(at);
            self.armed = next;
        }
    }

    fn expire(&mut self) -> Result<(), Lost> {
        let now = Instant::now();
        let end = self.backlog.expire(now);
        let silent = self.backlog.is_owed() && now >= self.last_received + self.silence;
        if silent || end.is_err() {
            // What the server has not read yet it should not run later.
            self.stream.forget_on_drop();
            return Err(Lost::silent());
        }
        Ok(())
    }
}

/// The length of what was read or written. Nothing is the end.
fn closed_if_zero(length: io::Result<usize>) -> Result<usize, Lost> {
    match length.map_err(|error| failed(&error))? {
        0 => Err(Lost::new(LostKind::Closed, "the server closed it")),
        length => Ok(length),
    }
}

fn failed(error: &io::Error) -> Lost {
    Lost::new(LostKind::Closed, error.to_string())
}

impl Future for Driver {
    type Output = Lost;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Lost> {
        let this = self.get_mut();
        let end = this.drive(cx);
        // Before a receiver of events may panic.
        if let Err(lost) = &end {
            this.lose(lost.clone());
        }
        this.record();
        end.map_or_else(Poll::Ready, |()| Poll::Pending)
    }
}
