//! Question and answer on a new connection, one after the other.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connection::{
    command::{push_argument, push_count},
    connect_error::ConnectError,
    resp::{Decoder, Reply},
    stream::Transport,
    value::Value,
};

/// A connection that only this dialogue uses. It has no deadline: whoever holds it has one.
#[derive(Debug)]
pub(super) struct Handshake<S> {
    stream: S,
    input: BytesMut,
}

impl<S: Transport> Handshake<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
        }
    }

    /// The answer to a command; `Ok(Err(..))` is an error of the server.
    pub(super) async fn ask(
        &mut self,
        command: &[&str],
    ) -> Result<Result<Value, String>, ConnectError> {
        let mut out = Vec::new();
        push_count(&mut out, command.len());
        for argument in command {
            push_argument(&mut out, argument.as_bytes());
        }
        // A server that is full says so and hangs up without reading: what it said counts, not that it did not read.
        let written = async {
            self.stream.write_all(&out).await?;
            self.stream.flush().await
        };
        let written = written.await;
        let mut decoder = Decoder::default();
        loop {
            match decoder.decode(&self.input) {
                Ok(Some((reply, length))) => {
                    self.input.advance(length);
                    if let Reply::Error(line) = reply {
                        return Ok(Err(line));
                    }
                    match reply.into_value() {
                        Some(value) => return Ok(Ok(value)),
                        None => continue,
                    }
                }
                Ok(None) => {}
                Err(malformed) => return Err(ConnectError::unavailable(malformed.what())),
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => {
                    let why = written.err().map(|error| format!(": {error}"));
                    return Err(ConnectError::unavailable(format!(
                        "the server closed the connection{}",
                        why.unwrap_or_default()
                    )));
                }
                Ok(_) => {}
                Err(error) => return Err(ConnectError::unavailable(error.to_string())),
            }
        }
    }

    /// The stream, once nothing is unread.
    pub(super) fn finish(self) -> Result<S, ConnectError> {
        if self.input.is_empty() {
            Ok(self.stream)
        } else {
            Err(ConnectError::unavailable(
                "the server said more than it was asked",
            ))
        }
    }
}
