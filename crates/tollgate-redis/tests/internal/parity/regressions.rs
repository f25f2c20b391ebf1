//! Seeds that failed once.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::PathBuf,
    thread,
};

#[derive(Debug)]
pub(crate) struct Regressions {
    test: String,
    file: PathBuf,
}

/// Keeps a seed if the test panics while this is held.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    of: &'a Regressions,
    seed: u64,
}

impl Regressions {
    pub(crate) fn of(test: &str) -> Self {
        Self {
            test: test.into(),
            file: PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("tests/internal/parity/regressions.txt"),
        }
    }

    /// A line is the name of a test and a seed.
    pub(crate) fn seeds(&self) -> Vec<u64> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.strip_prefix(&self.test)?.trim().parse().ok())
            .collect()
    }

    pub(crate) fn guard(&self, seed: u64) -> Guard<'_> {
        Guard { of: self, seed }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let Self { of, seed } = self;
        eprintln!("{} fails with TOLLGATE_PARITY_SEED={seed}", of.test);
        let file = OpenOptions::new().create(true).append(true).open(&of.file);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{} {seed}", of.test)) {
            eprintln!("the seed could not be kept in {:?}: {error}", of.file);
        }
    }
}
