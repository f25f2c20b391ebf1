//! The format of states: its version is part of their names.
//!
//! A process reads and writes the states of its own format, under names that end in its version. So processes of two releases
//! whose formats differ never read what they do not understand, and nothing fails while one replaces the other.
//!
//! A newer process that finds no state under its own name looks under that of the format before, once: it converts what is
//! there and writes it under its own name. The older state stays as it is, for the older processes; so what they admit from
//! then on is what the newer ones do not count.

/// The version of the format of this release: in names, and in the upper half of the first byte of a state.
pub(crate) const VERSION: u8 = 1;

/// Which formats a process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Formats {
    /// That of the states it writes.
    pub(crate) written: u8,
    /// The one before, whose states it converts.
    pub(crate) older: Option<u8>,
}

impl Formats {
    /// Those of this release. The first has none before it.
    ///
    /// With the next, `converted` in `prelude.lua` makes a state of the older format one of the newer.
    pub(crate) const KNOWN: Self = Self {
        written: VERSION,
        older: None,
    };
}

#[cfg(test)]
mod tests;
