//! A `redis-server` of a test's own: a free port, a folder that goes with it, killed on drop. `TOLLGATE_REDIS_SERVER` names
//! another program, such as a `valkey-server`.

use std::{
    env, fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

/// A server is asked this often before it is given up: half a minute, on a machine that is busy.
const POLLS: u32 = 6_000;
const PAUSE: Duration = Duration::from_millis(5);

/// Another process may take the free port before the server does: then another port is tried.
const PORTS: u32 = 5;

static STARTED: AtomicU32 = AtomicU32::new(0);

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl RedisServer {
    /// A server that writes nothing to disk. `args` go to the end of the command line, so that they win.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// As [`start`](Self::start), with these variables in its environment.
    pub(crate) fn start_with(args: &[&str], environment: &[(&str, &Path)]) -> Self {
        for _ in 0..PORTS {
            let port = free_port();
            let dir = own_folder();
            let child = spawn(port, &dir, args, environment);
            let mut server = Self { child, port, dir };
            if server.answers() {
                return server;
            }
        }
        panic!("redis-server {args:?} did not start: it ended {PORTS} times without an answer");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The folder that the server runs in.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process, for tests that stop it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Polls until the server says who it is; false when it has ended.
    fn answers(&mut self) -> bool {
        for _ in 0..POLLS {
            if says_its_pid(self.address(), self.child.id()).is_ok_and(|says| says) {
                return true;
            }
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return false;
            }
            thread::park_timeout(PAUSE);
        }
        panic!("redis-server on port {} does not answer", self.port);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn spawn(port: u16, dir: &Path, args: &[&str], environment: &[(&str, &Path)]) -> Child {
    let program = env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    Command::new(&program)
        .current_dir(dir)
        .envs(environment.iter().copied())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--loglevel", "warning", "--logfile", "redis.log"])
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

/// Another server that was faster at this port would answer as well, and would not last as long as the test.
fn says_its_pid(address: SocketAddr, pid: u32) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"INFO server\r\nQUIT\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.contains(&format!("process_id:{pid}\r")))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
    listener.local_addr().expect("it is bound").port()
}

fn own_folder() -> PathBuf {
    let n = STARTED.fetch_add(1, Ordering::Relaxed);
    let dir = env::temp_dir().join(format!("tollgate-redis-{}-{n}", process::id()));
    fs::create_dir_all(&dir).expect("a folder in the temporary folder");
    dir
}
