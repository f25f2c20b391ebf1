//! From a place to a connection that is logged in.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};

#[cfg(feature = "tls")]
use crate::connection::stream::encrypt;
use crate::{
    address::{Address, Login, Place},
    connection::{
        command::{push_argument, push_count},
        error::{ConnectError, ConnectErrorKind, NAME_THE_MASTER},
        options::NodeOptions,
        resp::{Value, decode},
        stream::{Stream, tune, unix},
    },
};

/// How connections to the servers of an address are made.
pub(super) struct Connector {
    pub(super) address: Address,
    pub(super) options: NodeOptions,
    /// The number of the address of a host that is tried first: another one where the last connection was of no use.
    first: AtomicUsize,
}

/// A connection that is logged in.
pub(super) struct Connected {
    pub(super) handshake: Handshake,
    /// Where the server is, and as what it has introduced itself, as far as it has.
    pub(super) peer: String,
    /// The replies to the further commands, in order.
    pub(super) answers: Vec<HandshakeAnswer>,
}

impl Connector {
    pub(super) fn new(address: Address, options: NodeOptions) -> Self {
        let first = AtomicUsize::new(0);
        Self {
            address,
            options,
            first,
        }
    }

    /// Connects, logs in, and sends `further` commands behind that: one round trip for TCP, those of TLS, and one for all the
    /// rest. It takes no longer than `within`.
    pub(super) async fn connect(
        &self,
        place: &Place,
        login: &Login,
        further: &[&[&str]],
        within: Duration,
    ) -> Result<Connected, ConnectError> {
        let connected = async {
            let failed =
                |error: io::Error| ConnectError::new(ConnectErrorKind::Tcp, error.to_string());
            // Counted before the attempt, because its caller may give up meanwhile.
            let first = self.first.fetch_add(1, Ordering::Relaxed);
            let stream = match place {
                Place::Tcp(host, port) => {
                    let stream = dial(host, *port, first, within).await?;
                    tune(&stream).map_err(failed)?;
                    match self.address.is_encrypted {
                        #[cfg(feature = "tls")]
                        true => encrypt(self.options.security.clone(), stream, host).await?,
                        _ => Box::new(stream),
                    }
                }
                Place::Unix(path) => unix(path).await.map_err(failed)?,
            };
            let connected = self.log_in(stream, place, login, further).await?;
            self.first.store(first, Ordering::Relaxed);
            Ok(connected)
        };
        timeout(within, connected).await.unwrap_or_else(|_| {
            // The other way round a server ends the connection.
            let hint = match self.address.is_encrypted {
                true => "; if this port does not encrypt, an address begins with redis://",
                false => "",
            };
            let what = format!("not ready within {within:?}{hint}");
            Err(ConnectError::new(ConnectErrorKind::Timeout, what))
        })
    }

    /// By `HELLO` where the server has it, which needs no right for the name.
    async fn log_in(
        &self,
        stream: Stream,
        place: &Place,
        login: &Login,
        further: &[&[&str]],
    ) -> Result<Connected, ConnectError> {
        // What servers show for the connection, in `CLIENT LIST` and the slow log.
        let name = format!("tollgate:{}", self.options.namespace);
        let database = self.address.database.to_string();
        let select = ["SELECT", &database];
        let mut behind: Vec<&[&str]> = vec![
            &["CLIENT", "SETINFO", "LIB-NAME", "tollgate-redis"],
            &["CLIENT", "SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")],
        ];
        if self.address.database != 0 {
            behind.push(&select);
        }
        behind.extend(further);
        let mut handshake = Handshake::new(stream);
        let mut greeting = None;
        if !self.address.without_hello {
            let mut hello = vec!["HELLO", "2"];
            if let Some((user, password)) = login.parts() {
                hello.extend(["AUTH", user, password]);
            }
            hello.extend(["SETNAME", &name]);
            handshake.send([&hello[..]].iter().chain(&behind)).await;
            match handshake.reply().await? {
                Ok(answer) => greeting = Some(answer),
                // What is behind it was answered too: by refusals, where a login is wanted.
                Err(line) if is_unknown(&line) => {
                    for _ in &behind {
                        let _ = handshake.reply().await?;
                    }
                }
                Err(line) => return Err(ConnectError::of_server("HELLO", &line)),
            }
        }
        let set_name = ["CLIENT", "SETNAME", &name];
        if greeting.is_none() {
            let auth = login.auth();
            // A server that refuses a name is still of use.
            behind.insert(0, &set_name);
            handshake.send(auth.as_deref().iter().chain(&behind)).await;
            if auth.is_some()
                && let Err(line) = handshake.reply().await?
            {
                return Err(ConnectError::of_server("AUTH", &line));
            }
        }
        let mut answers = Vec::new();
        for command in behind {
            match (command[0], handshake.reply().await?) {
                ("SELECT", Err(line)) => {
                    return Err(ConnectError::of_server(&command.join(" "), &line));
                }
                // Their answers decide nothing.
                ("SELECT" | "CLIENT", _) => {}
                (_, answer) => answers.push(answer),
            }
        }
        let is_replica = |hello: &Value| {
            matches!(hello.text_of("role"), Some("replica" | "slave"))
                // There, replicas send callers on.
                && hello.text_of("mode") != Some("cluster")
        };
        if greeting.as_ref().is_some_and(is_replica) {
            // Sentinels may name one after a fail-over, and a name may lead to one. It would answer denials and refuse all else.
            let what = match self.address.master {
                Some(_) => "it is a replica".to_owned(),
                None => format!("it is a replica; {NAME_THE_MASTER}"),
            };
            return Err(ConnectError::new(ConnectErrorKind::NotMaster, what));
        }
        let introduction = greeting.as_ref().map(introduction).unwrap_or_default();
        Ok(Connected {
            handshake,
            peer: format!("{place}{introduction}"),
            answers,
        })
    }
}

/// ` redis 7.0.15 master`, by what it has answered to `HELLO 2`.
fn introduction(answer: &Value) -> String {
    let words = ["server", "version", "role"]
        .into_iter()
        .filter_map(|name| answer.text_of(name));
    words.flat_map(|word| [" ", word]).collect()
}

/// A server or a proxy that knows no `HELLO`, or not all of it.
fn is_unknown(line: &str) -> bool {
    let starts = [
        "NOPROTO",
        "ERR unknown command",
        "ERR Syntax error",
        "ERR syntax error",
    ];
    starts.iter().any(|start| line.starts_with(start))
}

// From a host to a TCP connection.

/// How long each of several addresses may take to accept before the next one is tried.
const FIRST_TRY: Duration = Duration::from_millis(250);

/// Connects to the first address of a host that accepts. It begins with the one that has the number `first`, in the order in which
/// the system names them.
pub(super) async fn dial(
    host: &str,
    port: u16,
    first: usize,
    within: Duration,
) -> Result<TcpStream, ConnectError> {
    let found = lookup_host((host, port)).await.map_err(|error| {
        let message = format!("{host} is not found: {error}");
        ConnectError::new(ConnectErrorKind::Dns, message)
    })?;
    let mut addresses: Vec<_> = found.collect();
    let first = first % addresses.len().max(1);
    addresses.rotate_left(first);
    first_to_accept(addresses, within, TcpStream::connect).await
}

/// Several addresses are tried one after the other, for a short time each. So one that is dead does not cost the connection; and
/// those that were silent are tried once more for the time that is left, because a server may be far away.
async fn first_to_accept<T, F: Future<Output = io::Result<T>>>(
    mut addresses: Vec<SocketAddr>,
    within: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, ConnectError> {
    let ends = Instant::now() + within;
    let mut last = ConnectError::new(ConnectErrorKind::Tcp, "the host has no address");
    // One alone has all the time at once.
    let rounds = if addresses.len() == 1 { 1..2 } else { 0..2 };
    for round in rounds {
        let mut silent = Vec::new();
        for (left, address) in (1..=addresses.len() as u32).rev().zip(addresses) {
            let share = match round {
                0 => FIRST_TRY,
                _ => ends.saturating_duration_since(Instant::now()) / left,
            };
            let (kind, error) = match timeout(share, connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => (ConnectErrorKind::Tcp, error),
                Err(_) => {
                    silent.push(address);
                    // As its caller says, whose time ends together with this.
                    (ConnectErrorKind::Timeout, io::ErrorKind::TimedOut.into())
                }
            };
            last = ConnectError::new(kind, format!("{address}: {error}"));
        }
        addresses = silent;
    }
    Err(last)
}

// Commands and replies on a new connection.

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
    pub(super) async fn send<'a>(&mut self, commands: impl Iterator<Item = &'a &'a [&'a str]>) {
        let mut out = Vec::new();
        for command in commands {
            push_count(&mut out, command.len());
            for argument in *command {
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
        loop {
            match decode(&self.input) {
                Ok(Some((reply, length))) => {
                    self.input.advance(length);
                    return Ok(match reply {
                        Value::Error(line) => Err(line),
                        value => Ok(value),
                    });
                }
                Ok(None) => {}
                Err(malformed) => {
                    let why = format!("{malformed}; is it a Redis, and is it not encrypted?");
                    return Err(ConnectError::server(why));
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
            let why = "the server said more than it was asked";
            Err(ConnectError::server(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::sleep,
    };

    use super::*;

    fn connector(url: &str) -> Connector {
        let options = NodeOptions {
            namespace: "shop".to_owned(),
            ..NodeOptions::default()
        };
        Connector::new(url.parse().expect("an address"), options)
    }

    fn place() -> Place {
        Place::Tcp("cache".to_owned(), 6379)
    }

    /// The commands that arrive before anything is answered, by their words; then answers so.
    async fn hear(server: &mut DuplexStream, answers: &str) -> Vec<String> {
        let mut bytes = vec![0; 4_096];
        let length = server.read(&mut bytes).await.expect("commands");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let commands = text.split('*').skip(1).map(|command| {
            let words = command.split("\r\n").skip(2).step_by(2);
            words.collect::<Vec<_>>().join(" ").trim().to_owned()
        });
        let commands = commands.collect();
        server
            .write_all(answers.as_bytes())
            .await
            .expect("it is read");
        commands
    }

    const HELLO: &str = "*6\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$7\r\nversion\r\n$5\r\n9.1.0\r\n$4\r\nrole\r\n$6\r\nmaster\r\n";

    #[tokio::test]
    async fn all_that_is_said_on_a_new_connection_is_one_round_trip() {
        let (client, mut server) = duplex(65_536);
        let connector = connector("redis://limits:sesame@cache/1");
        let (place, login) = (place(), &connector.address.login);
        let logged_in = connector.log_in(Box::new(client), &place, login, &[&["ROLE"]]);
        let answers = format!("{HELLO}+OK\r\n+OK\r\n+OK\r\n*1\r\n$6\r\nmaster\r\n");
        let (logged_in, received) = tokio::join!(logged_in, hear(&mut server, &answers));
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            received,
            [
                "HELLO 2 AUTH limits sesame SETNAME tollgate:shop",
                "CLIENT SETINFO LIB-NAME tollgate-redis",
                &format!("CLIENT SETINFO LIB-VER {version}"),
                "SELECT 1",
                "ROLE",
            ]
        );
        let connected = logged_in.expect("it is logged in");
        assert_eq!(connected.peer, "cache:6379 valkey 9.1.0 master");
        assert_eq!(connected.answers.len(), 1);
        assert!(connected.handshake.input.is_empty());
    }

    #[tokio::test]
    async fn a_replica_is_turned_away_unless_it_is_of_a_cluster() {
        for (role, mode, is_let_in) in [
            ("master", "standalone", true),
            ("replica", "standalone", false),
            ("slave", "standalone", false),
            ("replica", "cluster", true),
        ] {
            let (client, mut server) = duplex(65_536);
            let connector = connector("redis://cache");
            let (place, login) = (place(), &connector.address.login);
            let logged_in = connector.log_in(Box::new(client), &place, login, &[]);
            let answers = format!("*4\r\n+mode\r\n+{mode}\r\n+role\r\n+{role}\r\n+OK\r\n+OK\r\n");
            let (logged_in, _) = tokio::join!(logged_in, hear(&mut server, &answers));
            let refused = logged_in.err().map(|error| error.kind());
            let expected = (!is_let_in).then_some(ConnectErrorKind::NotMaster);
            assert_eq!(refused, expected, "{role} {mode}");
        }
    }

    const WITHIN: Duration = Duration::from_secs(2);

    /// What becomes of addresses that answer after so many milliseconds, by accepting or by refusing, and after how many.
    async fn tried(addresses: &[(u64, bool)]) -> (Result<u16, (ConnectErrorKind, String)>, u128) {
        let began = Instant::now();
        let ports = (0..addresses.len() as u16).map(|port| ([10, 0, 0, 1], port).into());
        let connect = |address: SocketAddr| {
            let (after, accepts) = addresses[usize::from(address.port())];
            async move {
                sleep(Duration::from_millis(after)).await;
                match accepts {
                    true => Ok(address.port()),
                    false => Err(io::ErrorKind::ConnectionRefused.into()),
                }
            }
        };
        let first = first_to_accept(ports.collect(), WITHIN, connect).await;
        let connected = first.map_err(|error| (error.kind(), error.message().to_string()));
        (connected, began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_address_is_passed_over_and_a_far_one_has_its_time() {
        const NEVER: u64 = 3_600_000;
        assert_eq!(tried(&[(NEVER, true), (3, true)]).await, (Ok(1), 253));
        assert_eq!(
            tried(&[(1, false), (1, false), (1, true)]).await,
            (Ok(2), 3)
        );
        // One alone is far away.
        assert_eq!(tried(&[(1_900, true)]).await, (Ok(0), 1_900));
        // So are all that live.
        let (far, after) = tried(&[(NEVER, true), (260, true)]).await;
        assert_eq!((far, after), (Ok(1), 500 + 750 + 260));
        let (none, after) = tried(&[(NEVER, true), (NEVER, true)]).await;
        let (kind, why) = none.expect_err("nobody accepts");
        assert_eq!(kind, ConnectErrorKind::Timeout);
        assert!(why.starts_with("10.0.0.1:1: "), "{why}");
        assert_eq!(after, 2_000);
        let (none, _) = tried(&[]).await;
        let why = "the host has no address".to_owned();
        assert_eq!(none, Err((ConnectErrorKind::Tcp, why)));
    }

    #[tokio::test]
    async fn a_host_without_an_address_is_a_failure_of_dns() {
        let error = dial("no-such-host.invalid", 1, 0, WITHIN)
            .await
            .expect_err("there is none");
        assert_eq!(error.kind(), ConnectErrorKind::Dns);
        assert!(error.message().contains("no-such-host.invalid"), "{error}");
    }
}
