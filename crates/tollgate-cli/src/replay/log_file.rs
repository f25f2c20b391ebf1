//! The lines of a log: plain or compressed, of a file or the standard input.

use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;

/// The longest line that is read.
const LONGEST: usize = 1 << 20;

/// The lines of a log, one after the other.
pub(crate) struct LogFile {
    pub(crate) name: String,
    /// How many lines it has had so far.
    pub(crate) lines: u64,
    /// Why it ended before its end.
    pub(crate) broke_off: Option<String>,
    from: Box<dyn Read>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    has_ended: bool,
    /// Whether a line that is too long has begun.
    is_skipping: bool,
}

/// What the next line is.
pub(crate) enum Line<'a> {
    Text(&'a [u8]),
    TooLong,
}

impl LogFile {
    /// A file, or `-` for the standard input. `bar` goes on with what is read.
    pub(crate) fn open(path: &Path, bar: &ProgressBar) -> io::Result<Self> {
        let mut raw: Box<dyn Read> = match path.as_os_str() == "-" {
            true => Box::new(bar.wrap_read(io::stdin())),
            false => Box::new(bar.wrap_read(File::open(path)?)),
        };
        let mut begin = Vec::new();
        raw.by_ref().take(2).read_to_end(&mut begin)?;
        let is_gzip = begin == [0x1f, 0x8b];
        let all = Cursor::new(begin).chain(raw);
        let from: Box<dyn Read> = match is_gzip {
            true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 17, all))),
            false => Box::new(all),
        };
        let mut file = Self {
            name: path
                .file_name()
                .unwrap_or(path.as_os_str())
                .display()
                .to_string(),
            lines: 0,
            broke_off: None,
            from,
            buffer: vec![0; LONGEST],
            start: 0,
            end: 0,
            has_ended: false,
            is_skipping: false,
        };
        while !file.has_ended && file.end < LONGEST {
            file.fill();
        }
        Ok(file)
    }

    /// Its first lines, which are read again.
    pub(crate) fn sample(&self, most: usize) -> impl Iterator<Item = &[u8]> {
        let lines = self.buffer[..self.end]
            .split(|byte| *byte == b'\n')
            .take(most);
        lines.map(|line| line.trim_ascii())
    }

    /// The next line, without the spaces around it.
    pub(crate) fn next(&mut self) -> Option<Line<'_>> {
        let mut searched = self.start;
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[searched..self.end]);
            let is_last = found.is_none() && self.has_ended;
            if is_last && (self.start == self.end) && !self.is_skipping {
                return None;
            }
            if found.is_some() || is_last {
                let line = self.start..found.map_or(self.end, |at| searched + at);
                self.start = (line.end + 1).min(self.end);
                self.lines += 1;
                return match std::mem::take(&mut self.is_skipping) {
                    true => Some(Line::TooLong),
                    false => Some(Line::Text(self.buffer[line].trim_ascii())),
                };
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.end == LONGEST {
                self.is_skipping = true;
                self.end = 0;
            }
            searched = self.end;
            self.fill();
        }
    }

    fn fill(&mut self) {
        match self.from.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.has_ended = true,
            Ok(read) => self.end += read,
            Err(wrong) if wrong.kind() == io::ErrorKind::Interrupted => {}
            Err(wrong) => {
                self.has_ended = true;
                self.broke_off = Some(wrong.to_string());
            }
        }
    }
}
