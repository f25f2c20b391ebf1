//! The second client of the tests: redis-rs, which shares nothing with the connection under test. What it sends is what was
//! meant, many commands at a time.

use std::{net::SocketAddr, time::Duration};

use redis::{
    Client, Connection, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo, RedisResult,
    Value, io::tcp::TcpSettings, pack_command,
};

/// How long a server may take for an answer, on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// A connection.
pub struct RedisClient {
    connection: Connection,
    out: Vec<u8>,
}

impl RedisClient {
    /// Connects to a server that listens.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        let address = ConnectionAddr::Tcp(address.ip().to_string(), address.port());
        let info = address.into_connection_info().expect("an address");
        let info = info
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            // The server's statistics are those of what the test asks.
            .set_redis_settings(RedisConnectionInfo::default().set_skip_set_lib_name());
        let client = Client::open(info).expect("an address");
        let connection = client.get_connection().expect("the server listens");
        let timeout = connection.set_read_timeout(Some(DEADLINE));
        timeout.expect("a socket");
        Self {
            connection,
            out: Vec::new(),
        }
    }

    /// Puts a command behind those that wait.
    pub fn push<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) {
        let parts: Vec<_> = parts.into_iter().map(<[u8]>::to_vec).collect();
        self.out.extend(pack_command(&parts));
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        let sent = self.connection.send_packed_command(&self.out);
        sent.expect("the server reads");
        self.out.clear();
    }

    /// One command and its answer.
    pub fn command<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) -> Value {
        self.push(parts);
        self.flush();
        self.answer()
    }

    /// One command in words.
    pub fn say(&mut self, words: &str) -> Value {
        self.command(words.split(' ').map(str::as_bytes))
    }

    /// The next answer. One that is an error is a value too.
    pub fn answer(&mut self) -> Value {
        self.try_answer().expect("the server answers")
    }

    /// The same, of a server that may be gone.
    pub fn try_answer(&mut self) -> RedisResult<Value> {
        self.connection.recv_response()
    }
}

impl std::fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisClient").finish_non_exhaustive()
    }
}

/// What the script answers.
pub trait Integers {
    /// The integers of a list.
    fn integers(self) -> Vec<i64>;
}

impl Integers for Value {
    fn integers(self) -> Vec<i64> {
        let Self::Array(list) = self else {
            panic!("{self:?} is not a list");
        };
        let integers = list.into_iter().map(|value| match value {
            Self::Int(integer) => integer,
            other => panic!("{other:?} is not an integer"),
        });
        integers.collect()
    }
}
