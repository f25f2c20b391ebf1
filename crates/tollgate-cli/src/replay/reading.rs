//! Reading logs: their requests, in the order in which they came.

use http::StatusCode;
use tollgate_core::Tick;

use crate::replay::{
    line_format::LineFormat,
    log_file::LogFile,
    timeline::{Logged, Timeline},
};

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
