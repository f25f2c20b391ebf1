//! A server, eight processes on it, and the book of what they were admitted.

use std::{fs, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tollgate_test_servers::process::Process;

use crate::{
    admission::{self, Admission},
    load::Load,
    quota_oracle::{Allowance, above},
    worker::{self, end_of},
};

const PROCESSES: usize = 8;

const BOOK: &str = "book";

#[derive(Debug)]
pub(crate) struct Fleet {
    address: String,
    deadline: Duration,
    files: TempDir,
    processes: Vec<Process>,
    /// How often units were lost that the server did not know of.
    lost: u64,
    /// Admissions of jobs that were looked at.
    done: usize,
}

impl Fleet {
    /// Eight processes that ask the server at this address, and give calls up after this deadline.
    pub(crate) fn start(address: &str, deadline: Duration) -> Self {
        Self::across(address, address, deadline)
    }

    /// The same, with the last four at another address.
    pub(crate) fn across(address: &str, far: &str, deadline: Duration) -> Self {
        let files = TempDir::new().expect("a folder for the book");
        let book = files.path().join(BOOK);
        fs::write(&book, []).expect("the book is begun");
        let start = |place| {
            let address = if place < PROCESSES / 2 { address } else { far };
            worker::start(address, &book, deadline)
        };
        let mut processes: Vec<_> = (0..PROCESSES).map(start).collect();
        processes.iter_mut().for_each(has_replied);
        Self {
            address: address.to_owned(),
            deadline,
            processes,
            files,
            lost: 0,
            done: 0,
        }
    }

    /// Gives all processes a job, after the one before.
    pub(crate) fn begin(&mut self, load: &Load) {
        self.done += self.admitted().len();
        self.lost = 0;
        for process in &mut self.processes {
            process.begin(load);
        }
    }

    /// Ends the job. Asserts that anything was admitted, and the bounds of this program's documentation.
    pub(crate) fn end(&mut self, load: &Load, losses: u64) {
        let end = end_of(&self.book());
        fs::write(&end, []).expect("the end is written");
        self.processes.iter_mut().for_each(has_replied);
        fs::remove_file(&end).expect("the end was written");
        assert!(admission::is_whole(&self.book()), "a record is cut");
        let admitted = self.admitted();
        assert!(!admitted.is_empty(), "{load:?}");
        let allowance = Allowance {
            beyond: load.kind.unreported() * (PROCESSES as u64 + self.lost),
            losses,
        };
        let above = above(&load.quota(), &admitted, allowance);
        assert_eq!(
            above,
            0,
            "{load:?}: {above} units above the bound, of {} admissions, with {allowance:?}",
            admitted.len()
        );
    }

    fn book(&self) -> PathBuf {
        self.files.path().join(BOOK)
    }

    /// `kill -9` of one, another in its place, and the same job for it.
    pub(crate) fn replace(&mut self, place: usize, load: &Load) {
        self.lost += 1;
        let mut process = worker::start(&self.address, &self.book(), self.deadline);
        has_replied(&mut process);
        process.begin(load);
        self.processes[place] = process;
    }

    /// Each process may have given up so many reports.
    pub(crate) fn gave_up(&mut self, reports: u64) {
        self.lost += reports * PROCESSES as u64;
    }

    /// All that was admitted in this job, also to processes that were killed since.
    pub(crate) fn admitted(&self) -> Vec<Admission> {
        admission::read(&self.book()).split_off(self.done)
    }
}

/// Waits until a process is connected, or has done its job.
fn has_replied(process: &mut Process) {
    assert!(process.finish::<()>().is_some(), "it lives");
}
