//! A server of the test's own, for tests that wait for it without keeping others from running.

use std::{
    io,
    ops::{Deref, DerefMut},
    process::Command,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::blocking_server::{self, PAUSE, POLLS, PORTS};

pub use crate::blocking_server::free_port;

/// How long anything may take before a test gives up. It says nothing about how long it does take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct RedisServer(blocking_server::RedisServer);

impl RedisServer {
    /// Starts a server with these arguments of `redis-server`, and waits until it answers.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or it does not start.
    pub async fn start(args: &[&str]) -> Self {
        let mut log = String::new();
        for _ in 0..PORTS {
            let mut server = Self(blocking_server::RedisServer::launch(free_port(), args, &[]));
            if server.is_ready().await {
                return server;
            }
            log = server.0.log();
        }
        panic!("redis-server {args:?} did not start:\n{log}");
    }

    /// As [`start`](Self::start), on a port that a client knows already.
    ///
    /// # Panics
    ///
    /// As there.
    pub async fn start_on(port: u16, args: &[&str]) -> Self {
        let mut server = Self(blocking_server::RedisServer::launch(port, args, &[]));
        assert!(server.is_ready().await, "port {port} is taken");
        server
    }

    /// The raw answers to a command, as the protocol (version 2) writes them.
    pub async fn command(&self, command: &[&str]) -> String {
        self.commands(&[command]).await
    }

    /// The raw answers to commands on one connection.
    pub async fn commands(&self, commands: &[&[&str]]) -> String {
        send(self.port(), commands)
            .await
            .unwrap_or_else(|error| panic!("{commands:?}: {error}"))
    }

    /// Whether it says that it is in this role: `master` or `slave`. A server that changes its role sends everybody away,
    /// and says nothing then.
    pub async fn is_in_role(&self, role: &str) -> bool {
        let answer = send(self.port(), &[&["ROLE"]]).await;
        answer.is_ok_and(|answer| answer.contains(role))
    }

    /// Starts it anew on the same port, after `kill`.
    pub async fn restart(&mut self) {
        // Its port may be taken for a moment.
        for _ in 0..POLLS {
            self.0.relaunch();
            if self.is_ready().await {
                return;
            }
            sleep(PAUSE).await;
        }
        panic!("redis-server did not start again:\n{}", self.0.log());
    }

    /// Waits until it answers; false if it has ended.
    async fn is_ready(&mut self) -> bool {
        for _ in 0..POLLS {
            match self.0.is_up() {
                Some(is_up) => return is_up,
                None => sleep(PAUSE).await,
            }
        }
        panic!("redis-server does not answer:\n{}", self.0.log());
    }

    /// Lets it stand still: sockets stay open, and nothing is answered.
    pub fn stop(&self) {
        signal("-STOP", self.pid());
    }

    /// Lets it go on.
    pub fn resume(&self) {
        signal("-CONT", self.pid());
    }
}

impl Deref for RedisServer {
    type Target = blocking_server::RedisServer;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for RedisServer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

async fn send(port: u16, commands: &[&[&str]]) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut bytes = Vec::new();
    for command in commands {
        bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for argument in *command {
            bytes.extend_from_slice(format!("${}\r\n{argument}\r\n", argument.len()).as_bytes());
        }
    }
    stream.write_all(&bytes).await?;
    // A server that has answered closes a connection on which no more can come.
    stream.shutdown().await?;
    let mut answers = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answers)).await??;
    Ok(String::from_utf8_lossy(&answers).into_owned())
}

pub(crate) fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill {name}");
}
