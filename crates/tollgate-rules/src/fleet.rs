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
#[non_exhaustive]
pub struct FleetStatus {
    /// The number of the source's document.
    pub revision: u64,
    /// How many processes were heard lately, this one included.
    pub processes: u64,
    /// How many of them have an older document in force.
    pub lagging: u64,
    /// How many of them have a newer document in force, and keep it: the source was emptied, or restored from a backup. The next push
    /// gets a number above theirs.
    pub ahead: u64,
    /// Those that lag, the oldest documents first. Where many lag, 20 of them.
    pub lagging_processes: Vec<LaggingProcess>,
    /// How many different documents were in force somewhere in the last seconds: more than one while a change arrives.
    pub documents: usize,
}

/// A process that has an older document in force than the source has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaggingProcess {
    /// The name of the process.
    pub name: String,
    /// The revision that it has in force.
    pub revision: u64,
    /// How long ago the first newer document came.
    pub lagging_for: Duration,
    /// Why, if it rejected the newer one: the first line of the error.
    pub rejection: Option<String>,
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
        let mut lagging = LaggingProcess {
            name: "web-1".to_owned(),
            revision: 6,
            lagging_for: Duration::from_secs(90),
            rejection: None,
        };
        let shown = |lagging: &LaggingProcess| {
            let status = FleetStatus {
                processes: 3,
                lagging: 1,
                lagging_processes: vec![lagging.clone()],
                ..FleetStatus::default()
            };
            status.to_string()
        };
        let text = "1 of 3 processes lag; web-1 has revision 6, behind for 90 s";
        assert_eq!(shown(&lagging), text);
        lagging.rejection = Some("limits.toml:5:9: no".to_owned());
        assert_eq!(shown(&lagging), format!("{text}: limits.toml:5:9: no"));
    }
}
