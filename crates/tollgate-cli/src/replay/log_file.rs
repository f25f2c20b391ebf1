//! The lines of a log: plain or compressed, of a file or the standard input.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;

/// The longest line that is read.
const LONGEST: usize = 1 << 20;
const BUFFER: usize = 1 << 17;

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
    /// Lines that tell the format.
    sample: VecDeque<Line<Vec<u8>>>,
    line: Vec<u8>,
}

impl LogFile {
    /// A file, or `-` for the standard input, and its first lines, which are read again. `bar` goes on with what is read.
    pub(crate) fn open(path: &Path, bar: &ProgressBar, sample: usize) -> io::Result<Self> {
        let raw: Box<dyn Read> = match path.as_os_str() == "-" {
            true => Box::new(bar.wrap_read(io::stdin())),
            false => Box::new(bar.wrap_read(File::open(path)?)),
        };
        let mut raw = BufReader::with_capacity(BUFFER, raw);
        let is_gzip = raw.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let name = path.file_name().unwrap_or(path.as_os_str());
        let mut file = Self {
            name: name.display().to_string(),
            lines: 0,
            broke_off: None,
            from: match is_gzip {
                true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(raw))),
                false => Box::new(raw),
            },
            sample: VecDeque::new(),
            line: Vec::new(),
        };
        for _ in 0..sample {
            let Some(line) = file.read().map(|line| line.map(<[u8]>::to_vec)) else {
                break;
            };
            file.sample.push_back(line);
        }
        Ok(file)
    }

    /// Its first lines.
    pub(crate) fn sample(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.sample.iter().flatten()
    }

    /// The next line, without white space around it.
    pub(crate) fn next(&mut self) -> Option<Line<&[u8]>> {
        let line = match self.sample.pop_front() {
            None => {
                let line = self.read()?.map(<[u8]>::len);
                line.map(|_| self.line.trim_ascii())
            }
            Some(line) => line.map(|line| {
                self.line = line;
                &*self.line
            }),
        };
        self.lines += 1;
        Some(line)
    }

    fn read(&mut self) -> Option<Line<&[u8]>> {
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
        match read {
            Ok(0) if !is_too_long => None,
            Err(_) => None,
            Ok(_) if is_too_long => Some(Err("it is longer than a mebibyte")),
            Ok(_) => Some(Ok(self.line.trim_ascii())),
        }
    }
}
