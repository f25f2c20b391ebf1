//! Which documents the processes of a service have in force.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// What a source knows of the other processes that follow it. A source writes it, and [`LiveRules::status`] shows it.
///
/// [`LiveRules::status`]: crate::LiveRules::status
#[derive(Clone, Debug, Default)]
pub struct Fleet(Arc<Mutex<FleetStatus>>);

/// The processes that follow one source, as this process has heard last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetStatus {
    pub(crate) revision: u64,
    pub(crate) processes: u64,
    pub(crate) lagging: u64,
    pub(crate) ahead: u64,
    pub(crate) longest: Vec<LaggingProcess>,
    pub(crate) documents: usize,
}

/// A process that has an older document in force than the source has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaggingProcess {
    pub(crate) name: String,
    pub(crate) revision: u64,
    pub(crate) lagging_for: Duration,
    pub(crate) rejection: Option<String>,
}

impl Fleet {
    /// Says what is known now.
    pub fn set(&self, status: FleetStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// What was said last.
    #[must_use]
    pub fn status(&self) -> FleetStatus {
        let status = self.0.lock();
        status.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl FleetStatus {
    /// `processes` follow a source whose document has this number; the `lagging` ones have an older one in force.
    #[must_use]
    pub fn new(revision: u64, processes: u64, lagging: Vec<LaggingProcess>) -> Self {
        Self {
            revision,
            processes,
            lagging: lagging.len() as u64,
            ahead: 0,
            longest: lagging,
            documents: 1,
        }
    }

    /// The number of the source's document.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many processes were heard lately, this one included.
    #[must_use]
    pub fn processes(&self) -> u64 {
        self.processes
    }

    /// How many of them have an older document in force.
    #[must_use]
    pub fn lagging(&self) -> u64 {
        self.lagging
    }

    /// How many of them have a newer document in force, and keep it: the source was emptied, or restored from a backup. The next push
    /// gets a number above theirs.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Those that lag, the oldest documents first. Where many lag, 20 of them.
    #[must_use]
    pub fn lagging_processes(&self) -> &[LaggingProcess] {
        &self.longest
    }

    /// How many different documents were in force somewhere in the last seconds: more than one while a change arrives.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.documents
    }
}

impl LaggingProcess {
    /// A process that has had an older document in force for this time since there was a newer one.
    #[must_use]
    pub fn new(name: impl Into<String>, revision: u64, lagging_for: Duration) -> Self {
        Self {
            name: name.into(),
            revision,
            lagging_for,
            rejection: None,
        }
    }

    /// The name of the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The revision that it has in force.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How long ago the first newer document came.
    #[must_use]
    pub fn lagging_for(&self) -> Duration {
        self.lagging_for
    }

    /// Why, if it rejected the newer one: the first line of the error.
    #[must_use]
    pub fn rejection(&self) -> Option<&str> {
        self.rejection.as_deref()
    }
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
        for process in &self.longest {
            let (name, revision) = (&process.name, process.revision);
            let secs = process.lagging_for.as_secs();
            write!(f, "; {name} has revision {revision}, behind for {secs} s")?;
            if let Some(rejection) = &process.rejection {
                write!(f, ": {rejection}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lags_is_named_with_its_revision_and_for_how_long() {
        let mut lagging = LaggingProcess::new("web-1", 6, Duration::from_secs(90));
        let shown =
            |lagging: &LaggingProcess| FleetStatus::new(7, 3, vec![lagging.clone()]).to_string();
        let text = "1 of 3 processes lag; web-1 has revision 6, behind for 90 s";
        assert_eq!(shown(&lagging), text);
        lagging.rejection = Some("limits.toml:5:9: no".to_owned());
        assert_eq!(shown(&lagging), format!("{text}: limits.toml:5:9: no"));
    }
}
