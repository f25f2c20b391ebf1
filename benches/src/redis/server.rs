//! A `redis-server` of the bench's own, on a free port of the loopback, that keeps nothing on the disk.

use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The server. It is killed on drop.
#[derive(Debug)]
pub struct Server {
    port: u16,
    child: Child,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// There is no `redis-server`, or it does not start.
    pub fn start() -> io::Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| {
                let what = "this bench starts a redis-server of its own";
                let remedy = "install it with `apt-get install redis-server`";
                io::Error::new(error.kind(), format!("{what} ({error}): {remedy}"))
            })?;
        let server = Self { port, child };
        for _ in 0..1000 {
            if server.send(&["PING"]).is_ok_and(|answer| answer == "+PONG") {
                return Ok(server);
            }
            std::thread::park_timeout(PAUSE);
        }
        Err(io::Error::other("redis-server does not answer"))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Forgets every key.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn forget(&self) -> io::Result<()> {
        self.send(&["FLUSHALL"]).map(|_| ())
    }

    /// The processor time that it has used, in nanoseconds. Nothing but Linux says.
    #[must_use]
    pub fn processor_time(&self) -> Option<f64> {
        // The first number is the time on a processor; the server decides on its first thread.
        time_of(&self.child.id().to_string())
    }

    /// The commands to run a script that it has carried out.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn scripts(&self) -> io::Result<u64> {
        // The inline form, so that the server closes after the answer and all of it is read.
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"INFO commandstats\r\nQUIT\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let calls = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse::<u64>().ok()?;
            (name.starts_with("eval") || name.starts_with("fcall")).then_some(calls)
        });
        Ok(calls.sum())
    }

    /// The first line of the answer to a command.
    fn send(&self, command: &[&str]) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut text = format!("*{}\r\n", command.len());
        for argument in command {
            text += &format!("${}\r\n{argument}\r\n", argument.len());
        }
        stream.write_all(text.as_bytes())?;
        let mut answer = vec![0; 1024];
        let length = stream.read(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer[..length]);
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }
}

/// The processor time that a process or a thread of `/proc` has used, in nanoseconds.
pub(super) fn time_of(who: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{who}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// How long a connection to a server that just starts is waited for.
const PAUSE: Duration = Duration::from_millis(10);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
