//! Why a command has no report, with what would help.

use std::fmt::Display;

use tollgate_rules::{
    DocumentError,
    redis::{PushError, PushErrorKind},
};

use crate::report::{self, Exit};

/// The text about exit codes at the end of each help page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, and the answer is yes: no mistake, no difference, allowed, nothing found
  1  done, and the answer is no: mistakes, differences, denied, something found
  2  the command line is wrong
  3  it could not be done: rules that cannot be read, a server that does not answer, a right that is missing";

/// Why a command has no report, with what would help.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    fn new(exit: Exit, message: impl Display) -> Self {
        let message = message.to_string();
        Self { exit, message }
    }

    /// The command line is wrong in a way that its grammar does not see.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The value of an option is wrong.
    pub(crate) fn argument(option: &str, value: &str, why: impl Display) -> Self {
        let value = report::line(value, 200);
        Self::usage(format!("--{option} {value}: {why}"))
    }

    /// It could not be done.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// It was left undone, because the user said no, or the answer is no.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self::new(Exit::No, message)
    }

    /// Wrong rules are an answer, where the question is whether they are right.
    pub(crate) fn mistakes(wrong: DocumentError) -> Self {
        Self::refused(Self::from(wrong).message)
    }
}

/// Rules that a command needs, and that cannot be read.
impl From<DocumentError> for Failure {
    fn from(wrong: DocumentError) -> Self {
        Self::failed(format!("{wrong}\n{}", hints(&wrong)).trim_end())
    }
}

/// What Redis, or another who pushes, has against a document.
impl From<PushError> for Failure {
    fn from(wrong: PushError) -> Self {
        let exit = match wrong.kind() {
            PushErrorKind::Document => Exit::No,
            PushErrorKind::Setting => Exit::Usage,
            _ => Exit::Failed,
        };
        Self::new(exit, wrong)
    }
}

/// What a name that is not bound is the name of, as messages call it, and the option that binds it.
const BOUND: &[(&str, &str)] = &[
    ("key", "key"),
    ("bound cost", "cost"),
    ("bound plan", "plan"),
    ("bound quota", "quota"),
    ("bound condition", "condition"),
    ("bound list", "list"),
    ("condition on the response", "response-condition"),
    ("cost by the response", "response-cost"),
];

/// What the library cannot know about a mistake: how it is mended on this command line, a line for each option that would help.
pub(crate) fn hints(wrong: &DocumentError) -> String {
    let has = |words: &str| {
        let mut mistakes = wrong.mistakes().iter();
        mistakes.any(|mistake| mistake.message.contains(words))
    };
    let mut hints = String::new();
    for (what, option) in BOUND {
        if has(&format!("unknown {what} ")) {
            let what = what.trim_start_matches("bound ");
            hints += &format!(
                "hint: if your code binds this {what}, name it with --bind-{option} NAME\n"
            );
        }
    }
    if has("Bindings::secret") {
        hints += "hint: the secret is in the environment variable TOLLGATE_SECRET, or see --secret-file\n";
    }
    hints
}
