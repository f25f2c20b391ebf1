//! Reading logs, plain or compressed: their requests, in the order in which they came.
//!
//! A log is in the order of ends, and not quite. A line is held back until none can come that belongs before it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use http::{StatusCode, request::Parts};
use indicatif::ProgressBar;
use tollgate_core::Tick;

use crate::replay::line_format::{Answered, LineFormat};

/// The longest line that is read.
const LONGEST: usize = 1 << 20;
const BUFFER: usize = 1 << 17;
/// How many bytes tell the format, and how many lines of them.
const HEAD: u64 = 1 << 16;
const SAMPLE: usize = 200;

/// A line; or why it cannot be read.
type Line<T> = Result<T, &'static str>;

/// The lines of a log, one after the other.
pub(crate) struct LogFile {
    pub(crate) name: String,
    /// How many lines it has had so far.
    pub(crate) lines: u64,
    /// Why it ended before its end.
    pub(crate) broke_off: Option<String>,
    from: Box<dyn BufRead>,
    /// How it begins.
    head: Vec<u8>,
    line: Vec<u8>,
}

impl LogFile {
    /// A file, or `-` for the standard input. `bar` goes on with what is read.
    pub(crate) fn open(path: &Path, bar: &ProgressBar) -> io::Result<Self> {
        let raw: Box<dyn Read> = match path.as_os_str() == "-" {
            true => Box::new(bar.wrap_read(io::stdin())),
            false => Box::new(bar.wrap_read(File::open(path)?)),
        };
        let mut raw = BufReader::with_capacity(BUFFER, raw);
        let is_gzip = raw.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let mut from: Box<dyn BufRead> = match is_gzip {
            true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(raw))),
            false => Box::new(raw),
        };
        let (mut head, name) = (Vec::new(), path.file_name().unwrap_or(path.as_os_str()));
        let read = (&mut from).take(HEAD).read_to_end(&mut head);
        if head.starts_with(b"\xef\xbb\xbf") {
            head.drain(..3);
        }
        Ok(Self {
            name: name.display().to_string(),
            lines: 0,
            broke_off: read.err().map(|wrong| wrong.to_string()),
            from: Box::new(Cursor::new(head.clone()).chain(from)),
            head,
            line: Vec::new(),
        })
    }

    /// Its first lines.
    pub(crate) fn sample(&self) -> impl Iterator<Item = &[u8]> {
        let lines = self.head.split(|byte| *byte == b'\n');
        lines.take(SAMPLE).map(<[u8]>::trim_ascii)
    }

    /// The next line, without white space around it.
    pub(crate) fn next(&mut self) -> Option<Line<&[u8]>> {
        self.line.clear();
        let mut read = (&mut self.from)
            .take(LONGEST as u64)
            .read_until(b'\n', &mut self.line);
        let is_too_long = self.line.len() == LONGEST && !self.line.ends_with(b"\n");
        if is_too_long {
            read = self.from.skip_until(b'\n');
        }
        if let Err(wrong) = &read {
            self.broke_off = Some(wrong.to_string());
        }
        if read.ok()? == 0 && !is_too_long {
            return None;
        }
        self.lines += 1;
        Some(match is_too_long {
            true => Err("it is longer than a mebibyte"),
            false => Ok(self.line.trim_ascii()),
        })
    }
}

/// How many lines are read and handed on at once.
const BATCH: usize = 2_048;

/// What has been read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) from: Option<Tick>,
    pub(crate) to: Tick,
    /// Lines that came long after later ones.
    pub(crate) late: u64,
    /// Requests that were answered with 429 then.
    pub(crate) denied_then: u64,
    /// Lines without a request.
    pub(crate) broken: u64,
    /// The first of them, and why.
    pub(crate) first_broken: Vec<(Place, &'static str)>,
}

impl Reading {
    fn note(&mut self, place: Place, why: &'static str) {
        self.broken += 1;
        if self.first_broken.len() < 5 {
            self.first_broken.push((place, why));
        }
    }
}

/// Where a request is in the logs, and when it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) at: Tick,
    pub(crate) file: usize,
    /// The number of the line in the file, from 1.
    pub(crate) number: u64,
}

/// Hands on the requests of all files, each with its head, as long as somebody takes them.
pub(crate) fn read(
    files: &mut [LogFile],
    format: &LineFormat,
    mut hand_on: impl FnMut(Vec<(Logged, Parts)>) -> bool,
) -> Reading {
    let (mut read, mut ready) = (Reading::default(), Vec::new());
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
            let (at, file) = (0, index);
            let mut place = Place { at, file, number };
            match line.and_then(|line| Ok((line, format.answered(line)?))) {
                Err(why) => read.note(place, why),
                Ok((line, answered)) => {
                    place.at = answered.time.at;
                    fronts[index] = Some(place.at);
                    read.denied_then += u64::from(answered.status == StatusCode::TOO_MANY_REQUESTS);
                    timeline.push(Logged {
                        place,
                        answered,
                        line: line.into(),
                    });
                }
            }
        }
        // At the end of all files, no later line can come.
        let front = fronts.iter().flatten().min().copied();
        timeline.release(front.unwrap_or(Tick::MAX), &mut ready);
        if let (Some(first), Some(last)) = (ready.first(), ready.last()) {
            read.from.get_or_insert(first.place.at);
            read.to = last.place.at;
            let mut requests = Vec::with_capacity(ready.len());
            for logged in ready.drain(..) {
                match format.head(&logged.line) {
                    Ok(head) => requests.push((logged, head)),
                    Err(why) => read.note(logged.place, why),
                }
            }
            if !hand_on(requests) {
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
const LONGEST_WAIT: Tick = 600 * SECOND;
/// How many lines are held back at most.
const MOST: usize = if cfg!(test) { 2 } else { 1 << 19 };

/// A line, at the time of its request.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) place: Place,
    pub(crate) answered: Answered,
    line: Box<[u8]>,
}

/// Lines that are held back.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Those with whole seconds, by second and file.
    groups: BTreeMap<(Tick, usize), Vec<Logged>>,
    /// Those whose requests' times are known, by second.
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
    pub(crate) fn push(&mut self, logged: Logged) {
        self.held += 1;
        self.longest = self.longest.max(logged.answered.took).min(LONGEST_WAIT);
        if !logged.answered.time.is_whole_second {
            return self.settle(logged);
        }
        let second = (logged.place.at / SECOND, logged.place.file);
        self.groups.entry(second).or_default().push(logged);
    }

    /// Puts it to the second of its request.
    fn settle(&mut self, mut logged: Logged) {
        let at = logged.place.at.saturating_sub(logged.answered.took);
        self.late += u64::from(at < self.released);
        logged.place.at = at.max(self.released);
        let second = logged.place.at / SECOND;
        self.seconds.entry(second).or_default().push(logged);
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
                logged.place.at = second * SECOND + index as Tick * SECOND / lines;
                self.settle(logged);
            }
        }
    }

    fn release_before(&mut self, second: Tick, out: &mut Vec<Logged>) {
        let later = self.seconds.split_off(&second);
        for (_, mut lines) in std::mem::replace(&mut self.seconds, later) {
            lines.sort_by_key(|logged| logged.place.at);
            self.held -= lines.len();
            self.released = lines.last().map_or(self.released, |last| last.place.at);
            out.append(&mut lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::line_format::LogTime;

    #[test]
    fn over_the_bound_requests_go_by_all_exact_times_that_are_known() {
        let (mut timeline, mut out) = (Timeline::new(true), Vec::new());
        for (number, seconds) in [(100, 0), (101, 9), (102, 0)] {
            let (file, at, took) = (0, number * SECOND, seconds * SECOND);
            let mut time = LogTime::parse(b"1.5").expect("a time");
            time.at = at;
            timeline.push(Logged {
                place: Place { at, file, number },
                answered: Answered {
                    time,
                    took,
                    status: StatusCode::OK,
                },
                line: Box::default(),
            });
        }
        timeline.release(102 * SECOND, &mut out);
        assert_eq!(out.len(), 1);
        timeline.release(Tick::MAX, &mut out);
        let numbers: Vec<_> = out.iter().map(|logged| logged.place.number).collect();
        assert_eq!((&*numbers, timeline.late), (&[101, 100, 102][..], 0));
    }
}
