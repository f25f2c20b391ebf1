//! What became of a mutation.

use std::fmt;

use crate::list::Mutation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A test failed.
    Caught,
    /// The tests did not end within their limit.
    Hung,
    /// The tests passed.
    Survived,
    /// It does not compile, so that it says nothing about tests.
    DoesNotCompile,
    /// No test has the name.
    NoTest,
    /// The test fails without the mutation too.
    FailsUnchanged,
}

impl Outcome {
    /// By what `cargo test` printed, and whether it ended well.
    pub(crate) fn of(success: bool, printed: &str) -> Self {
        if printed.contains("error: could not compile") {
            return Self::DoesNotCompile;
        }
        let ran = printed
            .lines()
            .filter_map(|line| {
                line.strip_prefix("running ")?
                    .split(' ')
                    .next()?
                    .parse::<u64>()
                    .ok()
            })
            .sum::<u64>();
        match (ran, success) {
            (0, _) => Self::NoTest,
            (_, true) => Self::Survived,
            (_, false) => Self::Caught,
        }
    }

    pub(crate) fn is_caught(self) -> bool {
        matches!(self, Self::Caught | Self::Hung)
    }

    /// Whether it is what the list says of the mutation.
    pub(crate) fn is_as_listed(self, mutation: &Mutation) -> bool {
        match mutation.equivalent {
            None => self.is_caught(),
            Some(_) => self == Self::Survived,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Caught => "caught",
            Self::Hung => "caught (hangs)",
            Self::Survived => "SURVIVED",
            Self::DoesNotCompile => "DOES NOT COMPILE",
            Self::NoTest => "NO SUCH TEST",
            Self::FailsUnchanged => "FAILS UNCHANGED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_fails_has_caught_it() {
        let printed = "running 0 tests\n\nrunning 2 tests\ntest a ... FAILED\n";
        assert_eq!(Outcome::of(false, printed), Outcome::Caught);
        assert_eq!(Outcome::of(true, printed), Outcome::Survived);
    }

    #[test]
    fn a_program_that_is_killed_has_caught_it() {
        let printed = "running 1 test\nmemory allocation failed\n";
        assert_eq!(Outcome::of(false, printed), Outcome::Caught);
    }

    #[test]
    fn what_ran_no_test_has_caught_nothing() {
        for success in [true, false] {
            assert_eq!(Outcome::of(success, "running 0 tests\n"), Outcome::NoTest);
            assert_eq!(Outcome::of(success, ""), Outcome::NoTest);
        }
        let compiler = "error[E0308]: mismatched types\nerror: could not compile `tollgate`\n";
        assert_eq!(Outcome::of(false, compiler), Outcome::DoesNotCompile);
    }
}
