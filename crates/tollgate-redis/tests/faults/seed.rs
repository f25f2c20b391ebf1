//! Where the numbers of a test begin.

use std::{
    env,
    io::{self, Write as _},
    thread,
};

use tollgate_test_servers::numbers::Numbers;

const NAME: &str = "TOLLGATE_FAULT_SEED";

/// Says how to repeat a test that fails.
#[derive(Debug)]
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) fn new() -> Self {
        Self(match env::var(NAME) {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|_| panic!("{NAME}={text:?} is not a number")),
            Err(_) => fastrand::u64(..),
        })
    }

    pub(crate) fn numbers(&self) -> Numbers {
        Numbers(self.0)
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = writeln!(io::stderr(), "to repeat it: {NAME}={}", self.0);
        }
    }
}
