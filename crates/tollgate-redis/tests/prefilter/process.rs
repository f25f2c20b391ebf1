//! Processes of a test's own: this program, run again in a role.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
    str::FromStr,
    time::Duration,
};

use crate::job::Job;

/// The test that plays the role.
const ROLE: &str = "a_process_plays_its_role";
pub(crate) const ADDRESS: &str = "TOLLGATE_TEST_ADDRESS";
pub(crate) const BOOK: &str = "TOLLGATE_TEST_BOOK";
pub(crate) const DEADLINE: &str = "TOLLGATE_TEST_DEADLINE";
/// So that lines of the test harness are told from answers.
pub(crate) const ANSWER: &str = "tollgate: ";

/// What became of the requests of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) layout: u64,
    pub(crate) allowed: u64,
    /// Verdicts by who made them.
    pub(crate) store: u64,
    pub(crate) learned: u64,
    pub(crate) lease: u64,
    pub(crate) eventual: u64,
    pub(crate) fallback: u64,
}

impl Counts {
    pub(crate) fn numbers(&self) -> [u64; 7] {
        let (store, learned) = (self.store, self.learned);
        let (lease, eventual) = (self.lease, self.eventual);
        [
            self.layout,
            self.allowed,
            store,
            learned,
            lease,
            eventual,
            self.fallback,
        ]
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let both = self.numbers().into_iter().zip(other.numbers());
        let mut sums = both.map(|(one, other)| one + other);
        let mut next = || sums.next().unwrap_or_default();
        Self {
            layout: next(),
            allowed: next(),
            store: next(),
            learned: next(),
            lease: next(),
            eventual: next(),
            fallback: next(),
        }
    }
}

impl FromStr for Counts {
    type Err = std::num::ParseIntError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap_or_default().parse();
        Ok(Self {
            layout: number()?,
            allowed: number()?,
            store: number()?,
            learned: number()?,
            lease: number()?,
            eventual: number()?,
            fallback: number()?,
        })
    }
}

/// A process that does jobs until it is dropped, which kills it as `kill -9` does.
#[derive(Debug)]
pub(crate) struct Process {
    process: process::Child,
    jobs: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// With a store on the server at this address, which gives a call up after this deadline.
    pub(crate) fn start(address: &str, book: &Path, deadline: Duration) -> Self {
        let program = env::current_exe().expect("the program of this test");
        let mut process = Command::new(program)
            .args([ROLE, "--exact", "--nocapture"])
            .env(ADDRESS, address)
            .env(BOOK, book)
            .env(DEADLINE, deadline.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program of this test runs again");
        let jobs = process.stdin.take();
        let answers = process.stdout.take().expect("it is piped");
        Self {
            process,
            jobs,
            answers: BufReader::new(answers),
        }
    }

    /// Waits until it is connected.
    pub(crate) fn is_ready(&mut self) {
        assert!(self.answer().is_some(), "the process has not started");
    }

    /// Gives it a job, and does not wait for it.
    pub(crate) fn begin(&mut self, job: &Job) {
        let jobs = self.jobs.as_mut().expect("it is piped");
        writeln!(jobs, "{job}").expect("the process reads");
    }

    /// What became of the job that was begun last; `None` if the process has died.
    pub(crate) fn finish(&mut self) -> Option<Counts> {
        self.answer()?.parse().ok()
    }

    fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.answers.read_line(&mut line);
            if !length.is_ok_and(|length| length > 0) {
                return None;
            }
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return Some(answer.trim().to_owned());
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
