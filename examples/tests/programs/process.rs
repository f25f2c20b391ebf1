//! A process of an example, over sockets.

use std::{
    env,
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread::park_timeout,
    time::{Duration, Instant},
};

use tollgate_test_servers::blocking_server::RedisServer;

/// A Redis that accepts connections, and its address.
pub(crate) fn redis() -> (RedisServer, String) {
    let server = RedisServer::start(&[]);
    let address = format!("redis://{}", server.address());
    (server, address)
}

/// A process of an example on a port of its own, killed on drop.
pub(crate) struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) output: String,
    pub(crate) address: String,
    /// What it writes to standard error.
    errors: File,
}

impl Process {
    /// Starts an example in a folder with these settings in its environment, and waits until it listens.
    pub(crate) fn start(example: &str, folder: &Path, settings: &[(&str, &str)]) -> Self {
        let program = program(example);
        let errors = tempfile::tempfile().expect("a file");
        let mut child = Command::new(&program)
            .current_dir(folder)
            .env("PORT", "0")
            .env_remove("REDIS_URL")
            // A machine that runs all tests is busy, and these are about what Redis decides.
            .env("REDIS_DEADLINE_MS", "30000")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone().expect("a handle"))
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{} does not start ({error}): `cargo build --workspace --all-features --examples` makes it",
                    program.display()
                )
            });
        let mut process = Self {
            out: BufReader::new(child.stdout.take().expect("it is piped")),
            child,
            output: String::new(),
            address: String::new(),
            errors,
        };
        while process.address.is_empty() {
            let start = process.output.len();
            let read = process.out.read_line(&mut process.output).expect("text");
            assert!(
                read > 0,
                "it ended before it listened: {}{}",
                process.output,
                process.errors()
            );
            let line = process.output[start..].trim_end();
            if let Some(address) = line.strip_prefix("listening on http://") {
                process.address = address.to_owned();
            }
        }
        process
    }

    /// What it has written to standard error. The place where it writes on does not move.
    pub(crate) fn errors(&self) -> String {
        let mut bytes = vec![0; 64 << 10];
        let read = self.errors.read_at(&mut bytes, 0).expect("a file");
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// Asks it politely to end; returns what it writes until then.
    pub(crate) fn end(mut self) -> String {
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &id]).status();
        assert!(killed.is_ok_and(|status| status.success()), "kill {id}");
        let mut last = String::new();
        self.out.read_to_string(&mut last).expect("text");
        let status = self.child.wait().expect("it is a child");
        assert!(status.success(), "{status}: {last}{}", self.errors());
        last
    }

    /// The status of the answer to a request without a body.
    pub(crate) fn send(&self, method: &str, path: &str) -> u16 {
        self.request(method, path, "").status
    }

    /// The answer to a request with these lines in its head, each with its end.
    pub(crate) fn request(&self, method: &str, path: &str, lines: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{lines}content-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let status = answer.split(' ').nth(1).and_then(|text| text.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {answer:?}"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        Answer {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// The body of the answer to `GET path`, once it holds.
    pub(crate) fn until(&self, path: &str, holds: impl Fn(&str) -> bool) -> String {
        #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
        let begin = Instant::now();
        loop {
            let body = self.request("GET", path, "").body;
            if holds(&body) {
                return body;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{body}");
            park_timeout(Duration::from_millis(20));
        }
    }
}

/// What a process answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header field.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where cargo puts an example: next to the folder of this test.
pub(crate) fn program(example: &str) -> PathBuf {
    let test = env::current_exe().expect("a test is a program");
    let profile = test.parent().and_then(|deps| deps.parent());
    let examples = profile.expect("target/debug/deps").join("examples");
    examples.join(format!("{example}{}", env::consts::EXE_SUFFIX))
}
