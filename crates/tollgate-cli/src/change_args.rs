//! Who changes what is in force, why and until when; and the question before it is done.

use std::{
    io::{self, Write as _},
    str::FromStr,
    time::SystemTime,
};

use clap::Args;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Unit};
use tollgate_rules::Author;

use crate::{failure::Failure, printable};

/// Who changes something, where it is not said.
const UNKNOWN: &str = "unknown";

/// Who, for the audit.
#[derive(Args, Clone, Debug)]
pub(crate) struct ByArgs {
    /// Who does it, for the audit.
    #[arg(long, value_name = "NAME", env = "USER", default_value = UNKNOWN)]
    by: String,
}

/// Why, for the audit.
#[derive(Args, Clone, Debug)]
pub(crate) struct BecauseArgs {
    #[command(flatten)]
    by: ByArgs,

    /// Why, for the audit and for whoever looks at it later.
    #[arg(long, value_name = "TEXT")]
    pub(crate) because: String,
}

/// Whether to ask.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct YesArgs {
    /// Does it without a question.
    #[arg(long, short = 'y')]
    yes: bool,
}

/// When it ends.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct UntilArgs {
    /// When it ends: a time with its zone, as 2026-12-04T18:00:00Z, or how long it lasts, as 2h or 3d. Default: never.
    #[arg(long, value_name = "TIME")]
    until: Option<Until>,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    At(Timestamp),
    In(SignedDuration),
}

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        let days = SpanRelativeTo::days_are_24_hours();
        let duration = text.parse().and_then(|span: Span| span.to_duration(days));
        let duration = duration.ok().filter(SignedDuration::is_positive);
        duration.map(Self::In).ok_or_else(|| {
            "write a time with its zone, as 2026-12-04T18:00:00Z or 2026-12-04T18:00+01:00, or how long it lasts, as 90min, 2h or 3d"
                .to_owned()
        })
    }
}

impl UntilArgs {
    /// When it ends, by the clock that says that it is `now`.
    pub(crate) fn time(self, now: SystemTime) -> Result<Option<SystemTime>, Failure> {
        let until = match self.until {
            None => return Ok(None),
            Some(Until::At(at)) => Ok(at),
            // Whole seconds are easier to read.
            Some(Until::In(duration)) => Timestamp::try_from(now)
                .and_then(|now| now.checked_add(duration)?.round(Unit::Second)),
        };
        let until = until.map_err(|_| {
            Failure::usage("--until: no calendar has that day; leave it out for ever")
        })?;
        Ok(Some(until.into()))
    }
}

impl ByArgs {
    pub(crate) fn author(&self) -> Author {
        match self.by.trim() {
            // A container often sets USER to nothing.
            "" => Author::new(UNKNOWN),
            by => Author::new(by),
        }
    }
}

impl BecauseArgs {
    pub(crate) fn author(&self) -> Result<Author, Failure> {
        match self.because.trim() {
            "" => Err(Failure::usage(
                "--because: say why in some words, as --because 'ticket 4711'",
            )),
            because => Ok(self.by.author().because(because)),
        }
    }
}

impl YesArgs {
    /// Says what will be done, and asks. The question goes to the standard error.
    ///
    /// # Errors
    ///
    /// The answer is not yes.
    pub(crate) fn ask(self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let _ = write!(io::stderr(), "{}\ngo on? [y/N] ", printable::lines(what));
        let mut answer = String::new();
        // What cannot be read is no yes.
        let _ = io::stdin().read_line(&mut answer);
        if ["y", "yes"].contains(&&*answer.trim().to_lowercase()) {
            return Ok(());
        }
        Err(Failure::refused(match answer.is_empty() {
            true => "nothing has changed: nobody has answered; --yes does it without a question",
            false => "nothing has changed",
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_end_is_a_time_or_how_long_it_lasts() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        for (text, seconds) in [
            ("2h", Some(8_200)),
            ("90min", Some(6_400)),
            ("3d", Some(260_200)),
            ("1970-01-01T01:00:00Z", Some(3_600)),
            ("1970-01-01T01:00+01:00", Some(0)),
            ("friday", None),
            ("2026-12-04", None),
            ("-2h", None),
            ("0s", None),
            ("", None),
        ] {
            let until = text.parse::<Until>().ok();
            let until = until.map(|until| UntilArgs { until: Some(until) });
            let at = until.and_then(|until| until.time(now).ok().flatten());
            let after = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
            assert_eq!(after.map(|after| after.as_secs()), seconds, "{text}");
        }
        let forever = "90000000h"
            .parse::<Until>()
            .map(|until| UntilArgs { until: Some(until) });
        let wrong = forever.expect("a duration").time(now);
        assert!(wrong.is_err_and(|wrong| wrong.message.contains("no calendar")));
    }
}
