//! Reading logs: their requests, in the order in which they came.
//!
//! A log is in the order of ends, and not quite. A line is held back until none can come that belongs before it.

use std::collections::BTreeMap;

use http::StatusCode;
use tollgate_core::Tick;

use crate::replay::{line_format::LineFormat, log_file::LogFile};

/// How many lines are read and handed on at once.
const BATCH: usize = 2_048;

/// What has been read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) from: Option<Tick>,
    pub(crate) to: Tick,
    /// Lines that came long after later ones.
    pub(crate) late: u64,
    /// Requests that were answered with 429 then.
    pub(crate) denied_then: u64,
    pub(crate) broken: Broken,
}

/// Lines without a request.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    pub(crate) lines: u64,
    /// The first of them, and why: file, number.
    pub(crate) first: Vec<(usize, u64, &'static str)>,
}

impl Broken {
    pub(crate) fn note(&mut self, file: usize, number: u64, why: &'static str) {
        self.lines += 1;
        if self.first.len() < 5 {
            self.first.push((file, number, why));
        }
    }
}

/// Hands on the lines of all files, until nobody takes them.
pub(crate) fn read(
    files: &mut [LogFile],
    format: &LineFormat,
    mut hand_on: impl FnMut(Vec<Logged>) -> bool,
) -> Read {
    let (mut read, mut ready) = (Read::default(), Vec::new());
    let mut timeline = Timeline::new(format.has_durations());
    // How far each file is; `None`: at its end.
    let mut fronts: Vec<Option<Tick>> = vec![Some(0); files.len()];
    loop {
        // The file that is furthest behind goes on.
        let open = fronts.iter().enumerate();
        let Some((_, index)) = open
            .filter_map(|(file, front)| Some(((*front)?, file)))
            .min()
        else {
            break;
        };
        for _ in 0..BATCH {
            let number = files[index].lines + 1;
            let Some(line) = files[index].next() else {
                fronts[index] = None;
                break;
            };
            if line == Ok(b"") {
                continue;
            }
            let answered = line.and_then(|line| Ok((line, format.answered(line)?)));
            let (line, answered) = match answered {
                Ok(answered) => answered,
                Err(why) => {
                    read.broken.note(index, number, why);
                    continue;
                }
            };
            let at = answered.time.at;
            fronts[index] = Some(at);
            read.denied_then += u64::from(answered.status == StatusCode::TOO_MANY_REQUESTS);
            let logged = Logged {
                at,
                took: answered.took,
                status: answered.status,
                file: index,
                number,
                line: line.into(),
            };
            timeline.push(logged, answered.time.is_whole_second);
        }
        match fronts.iter().flatten().min() {
            Some(front) => timeline.release(*front, &mut ready),
            None => timeline.finish(&mut ready),
        }
        if let (Some(first), Some(last)) = (ready.first(), ready.last()) {
            read.from.get_or_insert(first.at);
            read.to = last.at;
            if !hand_on(std::mem::take(&mut ready)) {
                break;
            }
        }
    }
    read.late = timeline.late;
    read
}

const SECOND: Tick = 1_000_000;
/// By how much a log may be out of order: processes of a server write what they have once in a while.
const DISORDER: Tick = 10 * SECOND;
/// The longest requests that are waited for, from the start and at most.
const LONG: Tick = 60 * SECOND;
const LONGEST: Tick = 600 * SECOND;
/// How many lines are held back at most.
const MOST: usize = 1 << 19;

/// A line, at the time of its request.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) at: Tick,
    pub(crate) took: Tick,
    pub(crate) status: StatusCode,
    pub(crate) file: usize,
    /// Its number in the file, from 1.
    pub(crate) number: u64,
    pub(crate) line: Box<[u8]>,
}

/// Lines that are held back.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Those with whole seconds, by second and file.
    groups: BTreeMap<(Tick, usize), Vec<Logged>>,
    /// Those whose time is known, by second.
    seconds: BTreeMap<Tick, Vec<Logged>>,
    held: usize,
    longest: Tick,
    /// What is before it has been given out.
    released: Tick,
    /// How many came too late.
    pub(crate) late: u64,
}

impl Timeline {
    pub(crate) fn new(has_durations: bool) -> Self {
        Self {
            longest: if has_durations { LONG } else { 0 },
            ..Self::default()
        }
    }

    /// Takes the next line of a file. Its `at` is the time of its end.
    pub(crate) fn push(&mut self, logged: Logged, is_whole_second: bool) {
        self.held += 1;
        self.longest = self.longest.max(logged.took).min(LONGEST);
        match is_whole_second {
            true => {
                let group = self.groups.entry((logged.at / SECOND, logged.file));
                group.or_default().push(logged);
            }
            false => self.settle(logged),
        }
    }

    fn settle(&mut self, mut logged: Logged) {
        logged.at = logged.at.saturating_sub(logged.took);
        if logged.at < self.released {
            self.late += 1;
            logged.at = self.released;
        }
        self.seconds
            .entry(logged.at / SECOND)
            .or_default()
            .push(logged);
    }

    /// Gives out what no later line can come before, where all files have come to `front`.
    pub(crate) fn release(&mut self, front: Tick, out: &mut Vec<Logged>) {
        let settled = front.saturating_sub(DISORDER) / SECOND;
        self.settle_before(settled);
        self.release_before(settled.saturating_sub(self.longest.div_ceil(SECOND)), out);
        // Rather early than without a bound.
        while self.held > MOST {
            let first = self.seconds.keys().next().copied();
            match first {
                Some(second) => self.release_before(second + 1, out),
                None => {
                    let second = self.groups.keys().next().map_or(0, |(second, _)| *second);
                    self.settle_before(second + 1);
                }
            }
        }
    }

    /// Spreads the lines of each second before that one evenly over it.
    fn settle_before(&mut self, second: Tick) {
        let later = self.groups.split_off(&(second, 0));
        for ((second, _), group) in std::mem::replace(&mut self.groups, later) {
            let lines = group.len() as Tick;
            for (index, mut logged) in group.into_iter().enumerate() {
                logged.at = second * SECOND + index as Tick * SECOND / lines;
                self.settle(logged);
            }
        }
    }

    fn release_before(&mut self, second: Tick, out: &mut Vec<Logged>) {
        let later = self.seconds.split_off(&second);
        for (_, mut lines) in std::mem::replace(&mut self.seconds, later) {
            lines.sort_by_key(|logged| logged.at);
            self.held -= lines.len();
            self.released = lines.last().map_or(self.released, |last| last.at);
            out.append(&mut lines);
        }
    }

    /// Gives out the rest.
    pub(crate) fn finish(&mut self, out: &mut Vec<Logged>) {
        self.settle_before(Tick::MAX);
        self.release_before(Tick::MAX, out);
    }
}
