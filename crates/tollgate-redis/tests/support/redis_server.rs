//! A `redis-server` of the test's own: on a free port of the loopback, in a folder of its own, killed on drop.
//! `TOLLGATE_REDIS_SERVER` names another program, such as a `valkey-server`.

use std::{
    env, io,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

/// How long anything may take before a test gives up. It says nothing about how long it does take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct RedisServer {
    port: u16,
    dir: TempDir,
    args: Vec<String>,
    child: Child,
}

impl RedisServer {
    /// Starts a server with these arguments of `redis-server`, and waits until it answers.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or it does not start.
    pub(crate) async fn start(args: &[&str]) -> Self {
        let dir = TempDir::new().expect("a folder for the server");
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        // Between the choice of a free port and its use another process may take it.
        for _ in 0..8 {
            let port = free_port();
            let mut child = spawn(port, dir.path(), &args);
            if is_ready(port, &mut child).await {
                return Self {
                    port,
                    dir,
                    args,
                    child,
                };
            }
        }
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        panic!("redis-server {args:?} did not start:\n{log}");
    }

    /// As [`start`](Self::start), on a port that a client knows already.
    ///
    /// # Panics
    ///
    /// As there.
    pub(crate) async fn start_on(port: u16, args: &[&str]) -> Self {
        let dir = TempDir::new().expect("a folder for the server");
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let child = spawn(port, dir.path(), &args);
        let mut server = Self {
            port,
            dir,
            args,
            child,
        };
        assert!(
            is_ready(port, &mut server.child).await,
            "port {port} is taken"
        );
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The raw answers to a command, as the protocol (version 2) writes them.
    pub(crate) async fn ask(&self, command: &[&str]) -> String {
        self.ask_all(&[command]).await
    }

    /// The raw answers to commands on one connection.
    pub(crate) async fn ask_all(&self, commands: &[&[&str]]) -> String {
        ask(self.port, commands)
            .await
            .unwrap_or_else(|error| panic!("{commands:?}: {error}"))
    }

    /// Whether it says that it is in this role: `master` or `slave`. A server that changes its role sends everybody away,
    /// and says nothing then.
    pub(crate) async fn is_in_role(&self, role: &str) -> bool {
        let answer = ask(self.port, &[&["ROLE"]]).await;
        answer.is_ok_and(|answer| answer.contains(role))
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it anew on the same port, after [`kill`](Self::kill).
    pub(crate) async fn restart(&mut self) {
        self.kill();
        let until = Instant::now() + PATIENCE;
        loop {
            self.child = spawn(self.port, self.dir.path(), &self.args);
            if is_ready(self.port, &mut self.child).await {
                return;
            }
            assert!(Instant::now() < until, "redis-server did not start again");
        }
    }

    /// Lets it stand still: sockets stay open, and nothing is answered.
    pub(crate) fn stop(&self) {
        signal("-STOP", self.pid());
    }

    pub(crate) fn resume(&self) {
        signal("-CONT", self.pid());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port of the loopback that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port()
}

fn spawn(port: u16, dir: &Path, args: &[String]) -> Child {
    let program = env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let mut command = Command::new(&program);
    // A first argument without dashes is a file of settings.
    let (file, args) = match args.first() {
        Some(first) if !first.starts_with("--") => args.split_at(1),
        _ => args.split_at(0),
    };
    command
        .args(file)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--logfile", "log"])
        .arg("--dir")
        .arg(dir)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| {
        panic!(
            "this test starts its own {}, which is not there ({error}): \
             install one with `apt-get install -y redis-server`, or name another in TOLLGATE_REDIS_SERVER",
            program.display()
        )
    })
}

/// Waits until the server answers anything but that it is loading; `false` if it ended. One that wants a password first is
/// believed to be the one.
async fn is_ready(port: u16, child: &mut Child) -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Ok(Some(_)) = child.try_wait() {
            return false;
        }
        // Another server that was faster at this port would answer as well, and would not last as long as the test.
        let pid = format!("process_id:{}\r", child.id());
        match ask(port, &[&["INFO", "server"]]).await {
            Ok(answer) if answer.starts_with("-LOADING") => {}
            Ok(answer) if answer.starts_with('-') || answer.contains(&pid) => return true,
            _ => {}
        }
        assert!(Instant::now() < until, "redis-server does not answer");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn ask(port: u16, commands: &[&[&str]]) -> io::Result<String> {
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

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill {name}");
}
