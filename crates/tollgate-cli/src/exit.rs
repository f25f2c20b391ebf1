//! What the program's exit code says.

use std::process::ExitCode;

/// The text about exit codes at the end of each help page.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done, and the answer is yes: no mistake, no difference, allowed, nothing found
  1  done, and the answer is no: mistakes, differences, denied, something found
  2  the command line is wrong
  3  it could not be done: rules that cannot be read, a server that does not answer, a right that is missing";

/// What the program's exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, and the answer is yes.
    Yes,
    /// Done, and the answer is no.
    No,
    /// The command line is wrong.
    Usage,
    /// It could not be done.
    Failed,
}

impl Exit {
    /// Yes or no.
    pub(crate) fn of(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Yes => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::Failed => 3,
        })
    }
}
