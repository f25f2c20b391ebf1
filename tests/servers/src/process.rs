//! Processes of a test's own: the test binary, run again in a role.
//!
//! A program that starts some has one test, `a_process_plays_its_role`, that plays the role; without a role it tests nothing.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Write as _},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::{Serialize, de::DeserializeOwned};

/// The test that plays the role, in every program that starts processes.
const ROLE: &str = "a_process_plays_its_role";
/// The environment variable that holds the role.
const PLAYED: &str = "TOLLGATE_TEST_ROLE";
/// Marks replies among the lines of the test harness.
const REPLY: &str = "tollgate: ";

/// A process that does jobs until it is dropped, which kills it as `kill -9` does.
#[derive(Debug)]
pub struct Process {
    process: process::Child,
    loads: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Process {
    /// Runs the test binary again, in this role.
    pub fn start(role: &impl Serialize) -> Self {
        let program = env::current_exe().expect("the program of this test");
        let mut process = Command::new(program)
            .args([ROLE, "--exact", "--nocapture"])
            .env(PLAYED, json(role))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program of this test runs again");
        let loads = process.stdin.take();
        let replies = process.stdout.take().expect("it is piped");
        Self {
            process,
            loads,
            replies: BufReader::new(replies),
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Gives it a job, and does not wait for it.
    pub fn begin(&mut self, load: &impl Serialize) {
        let loads = self.loads.as_mut().expect("it is piped");
        writeln!(loads, "{}", json(load)).expect("the process reads");
    }

    /// The reply to the job that was begun last; `None` if the process has died.
    pub fn finish<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.replies.read_line(&mut line);
            if !length.is_ok_and(|length| length > 0) {
                return None;
            }
            if let Some((_, reply)) = line.split_once(REPLY) {
                return serde_json::from_str(reply).ok();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers and text")
}

/// The role of this process, if it was started for one of this kind.
#[must_use]
pub fn role<T: DeserializeOwned>() -> Option<T> {
    let role = env::var(PLAYED).ok()?;
    serde_json::from_str(&role).ok()
}

/// The jobs of this process. They end with the process that gives them.
pub fn loads<T: DeserializeOwned>() -> impl Iterator<Item = T> {
    let lines = io::stdin().lines().map_while(Result::ok);
    lines.map(|line| serde_json::from_str(&line).expect("a job"))
}

/// Replies to a job.
pub fn reply(reply: &impl Serialize) {
    writeln!(io::stdout(), "{REPLY}{}", json(reply)).expect("somebody reads");
}
