//! The program `tollgate-server`, in a folder of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
};

use tempfile::TempDir;

/// The secret of all services of a test.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A server that runs until this is dropped.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
    /// Where its doors are, in the order of the settings.
    pub(crate) addresses: Vec<String>,
}

/// A folder with these settings and rules.
pub(crate) fn folder(settings: &str, rules: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("server.toml"), settings).expect("it is written");
    fs::write(folder.path().join("limits.toml"), rules).expect("it is written");
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-server"));
    command.args(arguments).current_dir(folder);
    command.env("TOLLGATE_SECRET", SECRET);
    command
}

/// What the program says and its exit code, where it ends by itself.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> (i32, String) {
    run_with(SECRET, folder, arguments)
}

/// The same with another secret.
pub(crate) fn run_with(secret: &str, folder: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = command(folder, arguments);
    let output = command.env("TOLLGATE_SECRET", secret).output();
    let Output { status, stderr, .. } = output.expect("it runs");
    (
        status.code().unwrap_or(-1),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

impl Server {
    /// Starts one with these settings, whose rules are `limits.toml`.
    pub(crate) fn start(settings: &str, rules: &str) -> Self {
        Self::start_with(settings, rules, &[])
    }

    /// The same with files beside them.
    pub(crate) fn start_with(settings: &str, rules: &str, files: &[(&str, &str)]) -> Self {
        let folder = folder(settings, rules);
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("it is written");
        }
        let mut process = command(folder.path(), &["server.toml"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut lines = BufReader::new(process.stderr.take().expect("it is piped"))
            .lines()
            .map_while(Result::ok);
        let listening = lines.by_ref().find_map(|line| {
            let addresses = line.split_once("listening on ");
            if addresses.is_none() {
                eprintln!("{line}");
            }
            Some(addresses?.1.split(", ").map(str::to_owned).collect())
        });
        // What it says later is that of the test.
        thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        Self {
            process,
            folder,
            addresses: listening.expect("it listens"),
        }
    }

    /// One with Envoy's door alone, in memory, and metrics.
    pub(crate) fn grpc(rules: &str) -> Self {
        let settings = "rules = 'limits.toml'\nmetrics = '127.0.0.1:0'\ndrain_seconds = 0\ngrpc = { listen = '127.0.0.1:0' }\n";
        Self::start(settings, rules)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it counts.
    pub(crate) async fn metrics(&self) -> String {
        let address = self
            .addresses
            .last()
            .expect("it has an address for metrics");
        let response = reqwest::get(format!("http://{address}/metrics"))
            .await
            .expect("it answers");
        response.text().await.expect("it is text")
    }

    /// Sends it a signal: TERM tells it to end.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .expect("there is kill");
        assert!(sent.success());
    }

    /// Its exit code, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.process
            .try_wait()
            .expect("it was started")
            .map(|status| status.code().unwrap_or(-1))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
