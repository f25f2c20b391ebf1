//! Which rules are in force, here and in the other processes of a service.

use std::{fmt, time::Duration};

use tollgate_core::Tick;

/// Which rules of a [`LiveRules`](crate::LiveRules) are in force, and what was rejected since. Displayed in one line, and the
/// rejected document's mistakes below it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RulesStatus {
    /// The number of the document in force: the source's, or 1 for the first one and one more with each change. 0 is the
    /// [fallback](crate::LiveRulesBuilder::fallback).
    pub revision: u64,
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
    /// The number of the source's document that was in force last. A text of this process may have taken its place.
    pub(crate) of_source: Option<u64>,
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
fn number_of(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// `tollgate_rules_revision`: the source's number, 0 for the fallback, and NaN where the source has none, because a file's revision
/// counts the changes that one process has seen. `tollgate_rules_in_force_timestamp_seconds`: since when, by which a monitor knows the
/// age. And 1 for as long as it is so: `tollgate_rules_rejected`, the latest document is rejected and an older one is in force;
/// `tollgate_rules_source_failing`, the source has no document, and the last one is in force.
pub(crate) fn show_metrics(status: &RulesStatus, since: Tick) {
    #[cfg(feature = "metrics")]
    {
        let flag = |is_so: bool| f64::from(u8::from(is_so));
        let is_fallback = status.revision == 0;
        let number = (status.of_source)
            .or(is_fallback.then_some(0))
            .map_or(f64::NAN, |number| number as f64);
        metrics::gauge!("tollgate_rules_revision").set(number);
        metrics::gauge!("tollgate_rules_in_force_timestamp_seconds").set(since as f64 / 1e6);
        metrics::gauge!("tollgate_rules_rejected").set(flag(status.last_rejection.is_some()));
        metrics::gauge!("tollgate_rules_source_failing").set(flag(status.source_error.is_some()));
    }
    let _ = (status, since);
}

/// `tollgate_rules_rejected_total`
pub(crate) fn count_rejected() {
    #[cfg(feature = "metrics")]
    metrics::counter!("tollgate_rules_rejected_total").increment(1);
}

/// The processes that follow one source, as this process has heard last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStatus {
    /// The number of the source's document.
    pub revision: u64,
    /// How many processes were heard lately, this one included.
    pub processes: u64,
    /// How many of them had an older document of the source in force last, whatever has replaced it in the process since.
    pub lagging: u64,
    /// How many of them had a newer one in force last, and keep it: the source was emptied, or restored from a backup. The next push
    /// gets a number above theirs.
    pub ahead: u64,
    /// Those that lag, the oldest documents first. Where many lag, 20 of them.
    pub lagging_processes: Vec<LaggingProcess>,
}

/// A process that had an older document of the source in force last. Displayed in a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaggingProcess {
    /// The name of the process.
    pub name: String,
    /// The source's revision that it had in force last.
    pub revision: u64,
    /// How long ago the first newer document came.
    pub lagging_for: Duration,
    /// Why, if it rejected the newer one: the first line of the error.
    pub rejection: Option<String>,
}

impl fmt::Display for FleetStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lagging, processes) = (self.lagging, self.processes);
        write!(f, "{lagging} of {processes} processes lag")?;
        if self.ahead > 0 {
            let ahead = self.ahead;
            write!(
                f,
                "; {ahead} of {processes} have a newer revision: push again"
            )?;
        }
        for process in &self.lagging_processes {
            write!(f, "; {process}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LaggingProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, revision, secs) = (&self.name, self.revision, self.lagging_for.as_secs());
        write!(f, "{name} has revision {revision}, behind for {secs} s")?;
        match &self.rejection {
            Some(rejection) => write!(f, ": {rejection}"),
            None => Ok(()),
        }
    }
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
