//! Commands and replies on a new connection.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connection::{
    command::{push_argument, push_count},
    error::{ConnectError, ConnectErrorKind},
    resp::{Decoder, RespReply, Value},
    stream::Stream,
};

/// A connection before it carries calls. It has no deadline: its owner has one.
pub(super) struct Handshake {
    stream: Stream,
    input: BytesMut,
    /// Why commands could not be written. Replies may still be there.
    not_written: Option<io::Error>,
}

/// The reply to a command; `Err` is an error of the server.
pub(super) type HandshakeAnswer = Result<Value, String>;

impl Handshake {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            not_written: None,
        }
    }

    /// Sends commands together, so that they cost one round trip.
    ///
    /// A server that is full says so and hangs up without reading. So what it says counts, and not that it did not read.
    pub(super) async fn send<'a, 'b: 'a>(
        &mut self,
        commands: impl IntoIterator<Item = &'a Vec<&'b str>>,
    ) {
        let mut out = Vec::new();
        for command in commands {
            push_count(&mut out, command.len());
            for argument in command {
                push_argument(&mut out, argument.as_bytes());
            }
        }
        let written = async {
            self.stream.write_all(&out).await?;
            self.stream.flush().await
        };
        self.not_written = written.await.err();
    }

    /// The reply to the next command.
    pub(super) async fn reply(&mut self) -> Result<HandshakeAnswer, ConnectError> {
        let failed = |what: String| ConnectError::new(ConnectErrorKind::Tcp, what);
        let mut decoder = Decoder::default();
        loop {
            match decoder.decode(&self.input) {
                Ok(Some((reply, length))) => {
                    self.input.advance(length);
                    return Ok(match reply {
                        RespReply::Error(line) => Err(line),
                        RespReply::Integers(integers) => Ok(Value::Integers(integers.into())),
                        RespReply::Value(value) => Ok(value),
                    });
                }
                Ok(None) => {}
                Err(malformed) => {
                    return Err(ConnectError::new(
                        ConnectErrorKind::Server,
                        format!("{malformed}; is it a Redis, and is it not encrypted?"),
                    ));
                }
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => {
                    let closed = "the server closed the connection";
                    return Err(failed(match self.not_written.take() {
                        Some(error) => format!("{closed}: {error}"),
                        None => closed.to_owned(),
                    }));
                }
                Ok(_) => {}
                Err(error) => return Err(failed(error.to_string())),
            }
        }
    }

    /// The stream, once nothing is unread.
    pub(super) fn finish(self) -> Result<Stream, ConnectError> {
        if self.input.is_empty() {
            Ok(self.stream)
        } else {
            Err(ConnectError::new(
                ConnectErrorKind::Server,
                "the server said more than it was asked",
            ))
        }
    }
}
