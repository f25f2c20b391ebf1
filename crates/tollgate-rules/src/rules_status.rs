//! Which rules are in force.

use std::{fmt, time::Duration};

use crate::fleet::FleetStatus;

/// Which rules of a [`LiveRules`](crate::LiveRules) are in force, and what was rejected since. Displayed in one line, and the
/// rejected document's mistakes below it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RulesStatus {
    /// The number of the document in force: the source's, or 1 for the first one and one more with each change. 0 is the
    /// [fallback](crate::LiveRulesBuilder::fallback).
    pub revision: u64,
    /// What tells its contents from others.
    pub hash: u64,
    /// How many rules it has.
    pub rules: usize,
    /// For how long it has been in force.
    pub in_force_for: Duration,
    /// How long the last change took, from the document that was read to the rules in force. Requests do not wait for it. Zero
    /// before the first change.
    pub took: Duration,
    /// How many documents were rejected since the start.
    pub rejected: u64,
    /// What is wrong with the latest document, if it was rejected: an older one is in force.
    pub last_rejection: Option<String>,
    /// Why the source has no document at present: Redis or a database is unavailable. The last one is in force.
    pub source_error: Option<String>,
    /// What is wrong with the files of lists that the document names, as they are now: each list has the entries from before.
    pub wrong_lists: Vec<String>,
    /// What operators had set in all processes and Redis has lost, and what came back with an older state of it, a line each: known where
    /// Redis was emptied or restored while this process ran, until an operator sets or ends something.
    pub lost: Vec<String>,
    /// The other processes that follow the source, if it knows of them.
    pub fleet: Option<FleetStatus>,
}

impl fmt::Display for RulesStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "revision {}, {}, in force for {} s, {} rejected",
            self.revision,
            number_of(self.rules, "rule"),
            self.in_force_for.as_secs(),
            number_of(self.rejected as usize, "document")
        )?;
        if let Some(fleet) = &self.fleet {
            write!(f, "; {fleet}")?;
        }
        let errors = self.source_error.iter().chain(&self.wrong_lists);
        for error in errors.chain(&self.lost) {
            write!(f, "; {error}")?;
        }
        match &self.last_rejection {
            Some(rejection) => write!(f, "; the latest one is rejected:\n{rejection}"),
            None => Ok(()),
        }
    }
}

/// "1 rule", "2 rules".
pub(crate) fn number_of(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_is_in_force_and_for_how_long() {
        let mut status = RulesStatus {
            revision: 4,
            rules: 1,
            in_force_for: Duration::from_secs(61),
            rejected: 2,
            ..RulesStatus::default()
        };
        let text = "revision 4, 1 rule, in force for 61 s, 2 documents rejected";
        assert_eq!(status.to_string(), text);
        status.source_error = Some("Redis is away".to_owned());
        status.last_rejection = Some("a mistake".to_owned());
        assert_eq!(
            status.to_string(),
            format!("{text}; Redis is away; the latest one is rejected:\na mistake")
        );
    }
}
