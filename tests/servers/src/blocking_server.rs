//! A `redis-server` of a test's own: on a free port of the loopback, in a folder of its own, killed on drop.
//! `TOLLGATE_REDIS_SERVER` names another program, such as a `valkey-server`.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use redis::{Client, Cmd, FromRedisValue};
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// Attempts to reach a server before the test fails: a minute, on a busy machine.
pub const POLLS: u32 = 12_000;
/// Between two attempts.
pub const PAUSE: Duration = Duration::from_millis(5);

/// Another process may insist on a port that is bound here: then another port is tried.
pub const PORTS: u32 = 8;

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    program: OsString,
    child: Child,
    port: u16,
    dir: TempDir,
    args: Vec<String>,
    environment: Vec<(String, PathBuf)>,
}

impl RedisServer {
    /// A server that writes nothing to disk, and answers. `args` go to the end of the command line, so that they win.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or it does not start.
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// As [`start`](Self::start), with these variables in its environment.
    #[must_use]
    pub fn start_with(args: &[&str], environment: &[(&str, &Path)]) -> Self {
        Self::start_as(&named_program(), args, environment)
    }

    /// As [`start`](Self::start), by this program, whatever the environment names.
    #[must_use]
    pub fn start_program(program: &str, args: &[&str]) -> Self {
        Self::start_as(&program.into(), args, &[])
    }

    fn start_as(program: &OsString, args: &[&str], environment: &[(&str, &Path)]) -> Self {
        for _ in 0..PORTS {
            let mut server = Self::launch_as(program.clone(), free_port(), args, environment);
            for _ in 0..POLLS {
                match server.is_up() {
                    Some(true) => return server,
                    Some(false) => break,
                    None => thread::park_timeout(PAUSE),
                }
            }
        }
        panic!("{} {args:?} did not start", program.display());
    }

    /// One that may not answer yet, or never.
    #[must_use]
    pub fn launch(port: u16, args: &[&str], environment: &[(&str, &Path)]) -> Self {
        Self::launch_as(named_program(), port, args, environment)
    }

    fn launch_as(
        program: OsString,
        port: u16,
        args: &[&str],
        environment: &[(&str, &Path)],
    ) -> Self {
        let dir = TempDir::new().expect("a folder for the server");
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let owned = |(name, path): &(&str, &Path)| ((*name).to_owned(), path.to_path_buf());
        let environment: Vec<_> = environment.iter().map(owned).collect();
        Self {
            child: spawn(&program, port, dir.path(), &args, &environment),
            program,
            port,
            dir,
            args,
            environment,
        }
    }

    /// The same anew, on its port and in its folder.
    pub fn relaunch(&mut self) {
        self.kill();
        self.child = spawn(
            &self.program,
            self.port,
            self.dir.path(),
            &self.args,
            &self.environment,
        );
    }

    /// Whether it answers anything but that it is loading; `Some(false)` if it has ended.
    pub fn is_up(&mut self) -> Option<bool> {
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return Some(false);
        }
        let answer = info(self.address()).ok()?;
        // Another server that was faster at this port would answer as well, and would not last as long as the test. One that
        // wants a password first is believed to be the one.
        let is_it = answer.contains(&format!("process_id:{}\r", self.pid()));
        let is_closed = answer.starts_with('-') && !answer.starts_with("-LOADING");
        (is_it || is_closed).then_some(true)
    }

    /// The port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The same, as clients take it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The same for this user.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@{}", self.address())
    }

    /// The reply to a command, as somebody with access to the server sends it.
    ///
    /// # Panics
    ///
    /// It is an error, or of another type.
    #[must_use]
    pub fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let mut asked = Cmd::new();
        command.iter().for_each(|word| {
            asked.arg(*word);
        });
        let client = Client::open(self.url()).expect("an address");
        let connection = client.get_connection_with_timeout(Duration::from_secs(30));
        let reply = asked.query(&mut connection.expect("the server answers"));
        reply.unwrap_or_else(|wrong| panic!("{command:?}: {wrong}"))
    }

    /// The folder that the server runs in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process, for tests that stop it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written about itself.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port of the loopback without a listener, reserved for this process while it runs.
///
/// It stays bound, without anybody who listens: so neither another test nor a connection takes it before its server does, nor
/// once that is gone. Clients of a server that was killed would otherwise find another test's server there, and write to it.
pub fn free_port() -> u16 {
    static TAKEN: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let socket = TcpSocket::new_v4().expect("a socket");
    // A server may then bind to it as well.
    socket
        .set_reuseaddr(true)
        .expect("an option of every socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(any).expect("a free port on loopback");
    let port = socket.local_addr().expect("it is bound").port();
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    taken.push(socket);
    port
}

/// The one that the environment names, or `redis-server`.
fn named_program() -> OsString {
    env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn spawn(
    program: &OsString,
    port: u16,
    dir: &Path,
    args: &[String],
    environment: &[(String, PathBuf)],
) -> Child {
    // A first argument without dashes is a file of settings.
    let (file, args) = match args.first() {
        Some(first) if !first.starts_with("--") => args.split_at(1),
        _ => args.split_at(0),
    };
    Command::new(program)
        .current_dir(dir)
        .envs(environment.iter().map(|(name, path)| (name, path)))
        .args(file)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--logfile", "log"])
        .arg("--dir")
        .arg(dir)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "{} could not be started ({error}): these tests need redis-server on PATH, or another in \
                 TOLLGATE_REDIS_SERVER; on Debian or Ubuntu `apt-get install redis-server`, on macOS \
                 `brew install redis`",
                program.display()
            )
        })
}

/// What the server there says of itself.
fn info(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"INFO server\r\n")?;
    // A server that has answered closes a connection on which no more can come.
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
