//! A connection that speaks the protocol of Redis by hand: what it sends is what was meant, many commands at a time.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// How long a server may take for an answer, on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Integer(i64),
    Status(String),
    Error(String),
    Bytes(Vec<u8>),
    List(Vec<Self>),
}

impl Value {
    pub(crate) fn integers(self) -> Vec<i64> {
        match self {
            Self::List(list) => list
                .into_iter()
                .map(|value| match value {
                    Self::Integer(integer) => integer,
                    other => panic!("{other:?} is not an integer"),
                })
                .collect(),
            other => panic!("{other:?} is not a list"),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Resp {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

impl Resp {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
        Self {
            stream: BufReader::new(stream),
            out: Vec::new(),
        }
    }

    /// Puts a command behind those that wait.
    pub(crate) fn push<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) {
        let parts: Vec<_> = parts.into_iter().collect();
        self.out
            .extend(format!("*{}\r\n", parts.len()).into_bytes());
        for part in parts {
            self.out.extend(format!("${}\r\n", part.len()).into_bytes());
            self.out.extend(part);
            self.out.extend(b"\r\n");
        }
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) {
        self.stream
            .get_mut()
            .write_all(&self.out)
            .expect("the server reads");
        self.out.clear();
    }

    /// One command and its answer.
    pub(crate) fn command<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) -> Value {
        self.push(parts);
        self.flush();
        self.answer()
    }

    /// One command in words.
    pub(crate) fn say(&mut self, words: &str) -> Value {
        self.command(words.split(' ').map(str::as_bytes))
    }

    pub(crate) fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .expect("the server answers");
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        let number = || -> i64 { rest.parse().expect("a number") };
        match kind {
            "+" => Value::Status(rest.into()),
            "-" => Value::Error(rest.into()),
            ":" => Value::Integer(number()),
            "$" if number() < 0 => Value::Nil,
            "$" => {
                let mut bytes = vec![0; number() as usize + 2];
                self.stream
                    .read_exact(&mut bytes)
                    .expect("the server answers");
                bytes.truncate(bytes.len() - 2);
                Value::Bytes(bytes)
            }
            "*" => Value::List((0..number()).map(|_| self.answer()).collect()),
            other => panic!("{other:?} begins no answer"),
        }
    }
}
