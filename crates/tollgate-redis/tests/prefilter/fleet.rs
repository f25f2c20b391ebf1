//! A server, eight processes on it, and the book of what they were admitted.

use std::{fs, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tollgate_core::Consistency;
use tollgate_test_servers::process::Process;

use crate::{
    admission::{self, Admission},
    calls::Counts,
    clock,
    load::Load,
    quota_oracle::{Allowance, above},
    worker::{self, end_of},
};

pub(crate) const PROCESSES: usize = 8;

const BOOK: &str = "book";

/// Calls are not given up.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Fleet {
    address: String,
    deadline: Duration,
    files: TempDir,
    pub(crate) processes: Vec<Process>,
    /// How often units were lost that the server did not know of.
    lost: u64,
    /// Admissions of jobs that were looked at.
    done: usize,
    wall_ahead: u64,
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
        processes.iter_mut().for_each(is_ready);
        Self {
            address: address.to_owned(),
            deadline,
            processes,
            files,
            lost: 0,
            done: 0,
            wall_ahead: clock::wall_ahead(),
        }
    }

    /// Gives all processes a job, and waits until it is done.
    pub(crate) fn run(&mut self, load: &Load) -> Counts {
        self.begin(load);
        self.finish()
    }

    pub(crate) fn begin(&mut self, load: &Load) {
        for process in &mut self.processes {
            process.begin(load);
        }
    }

    /// Ends the job before its time.
    pub(crate) fn end(&mut self) -> Counts {
        let end = end_of(&self.book());
        fs::write(&end, []).expect("the end is written");
        let counts = self.finish();
        fs::remove_file(&end).expect("the end was written");
        counts
    }

    pub(crate) fn finish(&mut self) -> Counts {
        let finish = |process: &mut Process| process.finish().expect("the process lives");
        let counts = self.processes.iter_mut().map(finish);
        counts.fold(Counts::default(), Counts::plus)
    }

    fn book(&self) -> PathBuf {
        self.files.path().join(BOOK)
    }

    /// `kill -9` of one, another in its place, and the same job for it.
    pub(crate) fn replace(&mut self, place: usize, load: &Load) {
        self.lost += 1;
        let mut process = worker::start(&self.address, &self.book(), self.deadline);
        is_ready(&mut process);
        process.begin(load);
        self.processes[place] = process;
    }

    /// Reports may have been given up so often.
    pub(crate) fn gave_up(&mut self, reports: u64) {
        self.lost += reports;
    }

    /// Begins anew, under rules of other names.
    pub(crate) fn turn_over(&mut self) {
        self.done = admission::read(&self.book()).len();
        self.lost = 0;
    }

    /// All that was admitted, also to processes that were killed since.
    pub(crate) fn admitted(&self) -> Vec<Admission> {
        admission::read(&self.book()).split_off(self.done)
    }

    /// Asserts the bounds of this program's documentation for each rule and key of a job.
    pub(crate) fn keeps_its_bounds(&self, load: &Load, losses: u64) {
        assert!(admission::is_whole(&self.book()), "a record is cut");
        let mut all = self.admitted();
        all.sort_by_key(|it| (it.rule, it.key));
        for of_key in all.chunk_by(|one, other| (one.rule, one.key) == (other.rule, other.key)) {
            let rule_load = &load.rule_loads[of_key[0].rule as usize];
            let beyond = match rule_load.consistency {
                Consistency::Eventual { max_unreported, .. } => {
                    max_unreported * (PROCESSES as u64 + self.lost)
                }
                _ => 0,
            };
            let allowance = Allowance { beyond, losses };
            let above = above(&rule_load.limit.quota(), of_key, allowance, self.wall_ahead);
            assert_eq!(
                above,
                0,
                "{rule_load:?}: {above} units above the bound, of {} admissions to client {}, with {allowance:?}",
                of_key.len(),
                of_key[0].key
            );
        }
    }

    /// The units admitted under the rule at a place of the job.
    pub(crate) fn units(&self, rule: u64) -> u64 {
        let admitted = self.admitted().into_iter();
        let of_rule = admitted.filter(|it| it.rule == rule);
        of_rule.map(|it| it.units).sum()
    }
}

/// Waits until a process is connected.
fn is_ready(process: &mut Process) {
    assert!(process.finish::<()>().is_some(), "it has not started");
}
