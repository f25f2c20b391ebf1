//! A Postgres of a test's own, of Debian's package: on a free port of the loopback, in a folder of its own, ended on drop.
//! `TOLLGATE_POSTGRES` names another folder with `initdb` and `postgres`.

use std::{
    env, fs,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

use crate::{
    blocking_server::{PAUSE, POLLS, PORTS, free_port},
    redis_server::signal,
};

/// As whom a server runs that root starts: it refuses to run as root.
const NOBODY: u32 = 65_534;

/// A server that runs until this is dropped. It has the user and the database `postgres`, without a password.
#[derive(Debug)]
pub struct PostgresServer {
    child: Child,
    port: u16,
    dir: TempDir,
    settings: &'static [&'static str],
}

impl PostgresServer {
    /// Starts a server, and waits until it answers.
    ///
    /// # Panics
    ///
    /// There is no Postgres, or it does not start.
    pub async fn start() -> Self {
        // What is killed is the process: what it has given to the kernel stays.
        Self::start_with(&["fsync=off"]).await
    }

    /// The same with settings.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(settings: &'static [&'static str]) -> Self {
        let dir = TempDir::new().expect("a folder for the server");
        if is_root() {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let made = program("initdb", dir.path())
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8"])
            .args(["--locale=C", "--no-sync", "--pgdata"])
            .arg(dir.path().join("data"))
            .output()
            .expect("initdb runs");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "initdb: {said}");
        let port = free_port();
        let child = launch(dir.path(), port, settings);
        let mut server = Self {
            child,
            port,
            dir,
            settings,
        };
        for _ in 1..PORTS {
            if server.is_ready().await {
                return server;
            }
            server.port = free_port();
            server.child = launch(server.dir.path(), server.port, settings);
        }
        panic!("postgres did not start:\n{}", server.log());
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// What it has written about itself.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Ends it at once, without a checkpoint and whatever its clients do: it has to recover.
    pub fn end(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal("-QUIT", self.child.id());
        }
        let _ = self.child.wait();
    }

    /// Starts it anew on the same port, after [`end`](Self::end).
    ///
    /// # Panics
    ///
    /// It does not start.
    pub async fn restart(&mut self) {
        for _ in 0..POLLS {
            self.end();
            self.child = launch(self.dir.path(), self.port, self.settings);
            if self.is_ready().await {
                return;
            }
            sleep(PAUSE).await;
        }
        panic!("postgres did not start again:\n{}", self.log());
    }

    /// Waits until it lets clients in; false if it has ended.
    async fn is_ready(&mut self) -> bool {
        for _ in 0..POLLS {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return false;
            }
            if lets_in(self.port).await == Some(true) {
                return true;
            }
            sleep(PAUSE).await;
        }
        panic!("postgres does not answer:\n{}", self.log());
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Begins a session, as the protocol (version 3) has it: the first reply is about authentication, or an error.
async fn lets_in(port: u16) -> Option<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let length = (8 + parameters.len()) as u32;
    let mut message = length.to_be_bytes().to_vec();
    message.extend(196_608_u32.to_be_bytes());
    message.extend(parameters);
    stream.write_all(&message).await.ok()?;
    Some(stream.read_u8().await.ok()? == b'R')
}

fn launch(dir: &Path, port: u16, settings: &[&str]) -> Child {
    let log = fs::File::options()
        .append(true)
        .create(true)
        .open(dir.join("log"))
        .expect("a file in the server's folder");
    let of_all = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "shared_buffers=64MB",
        "max_wal_size=2GB",
    ];
    let settings = of_all.iter().chain(settings);
    program("postgres", dir)
        .arg("-D")
        .arg(dir.join("data"))
        .args(["-p", &port.to_string()])
        .args(settings.flat_map(|setting| ["-c", setting]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("postgres runs")
}

fn program(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(programs().join(name));
    command.current_dir(dir).env_remove("PGDATA");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|said| said.stdout == b"0\n")
}

/// The folder of the newest version.
fn programs() -> PathBuf {
    if let Some(folder) = env::var_os("TOLLGATE_POSTGRES") {
        return folder.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").expect(
        "there is no Postgres in /usr/lib/postgresql; run tests/install.sh, or name the folder with initdb by TOLLGATE_POSTGRES",
    );
    let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let usable = versions.filter(|folder| folder.join("initdb").exists());
    usable.max().expect("a version of Postgres with a server")
}
