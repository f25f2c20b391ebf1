//! A Redis that lasts as long as an example.

use std::{
    io,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A `redis-server` on a free port of the loopback interface, that writes nothing to disk and ends when this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    dir: TempDir,
    child: Child,
}

impl RedisServer {
    /// Starts it. It answers some milliseconds later.
    ///
    /// # Errors
    ///
    /// There is no `redis-server`; the message says how to install one.
    pub fn start() -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        // Free now. Should another process be faster, the server ends, and the example finds no Redis.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = spawn(port, &dir)?;
        Ok(Self { port, dir, child })
    }

    /// Where it is, as `RedisStore::builder` takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it as a crash would: connections break, and its data is gone.
    ///
    /// # Errors
    ///
    /// The system does not let us.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Starts it anew at the same place, after [`kill`](Self::kill).
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    pub fn start_again(&mut self) -> io::Result<()> {
        self.child = spawn(self.port, &self.dir)?;
        Ok(())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

fn spawn(port: u16, dir: &TempDir) -> io::Result<Child> {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .args(["--maxmemory", "256mb", "--maxmemory-policy", "noeviction"])
        .arg("--dir")
        .arg(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "redis-server cannot be started ({error}); install it (Debian and Ubuntu: apt-get install redis-server, \
                     macOS: brew install redis)"
                ),
            )
        })
}
