//! Different documents in one fleet: normal while a change arrives, and a fault if it lasts.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// How long processes may have different documents: a new version of a service replaces an old one.
const DEPLOYMENT: Duration = Duration::from_secs(600);

/// What is wrong with the documents of a fleet. Each is said once, for as long as it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DocumentConflict {
    /// Two documents claim one revision.
    SameRevision(u64),
    /// There has been more than one document for longer than a deployment takes.
    Lasting { documents: usize, since: Duration },
}

/// The documents of a fleet over time.
#[derive(Debug, Default)]
pub(crate) struct DocumentConflicts {
    same: Vec<u64>,
    /// Since when there is more than one, and whether that was said.
    several: Option<(Instant, bool)>,
}

impl DocumentConflicts {
    /// Compares what is in force somewhere: `revision:hash`.
    pub(crate) fn compare(&mut self, documents: &[String], now: Instant) -> Vec<DocumentConflict> {
        let mut by_revision: BTreeMap<u64, usize> = BTreeMap::new();
        for document in documents {
            let revision = document.split(':').next().unwrap_or_default();
            *by_revision
                .entry(revision.parse().unwrap_or(0))
                .or_default() += 1;
        }
        // Revision 0 is each process's own fallback.
        let same = by_revision
            .iter()
            .filter(|(revision, all)| **revision > 0 && **all > 1);
        let same: Vec<u64> = same.map(|(revision, _)| *revision).collect();
        let fresh = same.iter().filter(|revision| !self.same.contains(revision));
        let mut found: Vec<_> = fresh.copied().map(DocumentConflict::SameRevision).collect();
        self.same = same;

        if documents.len() < 2 {
            self.several = None;
            return found;
        }
        let (began, is_said) = self.several.get_or_insert((now, false));
        let since = now.duration_since(*began);
        if since > DEPLOYMENT && !*is_said {
            *is_said = true;
            let documents = documents.len();
            found.push(DocumentConflict::Lasting { documents, since });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn documents(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn different_documents_are_a_fault_after_ten_minutes() {
        let mut conflicts = DocumentConflicts::default();
        let both = documents(&["3:aa", "4:bb"]);
        assert_eq!(conflicts.compare(&both, Instant::now()), []);
        advance(Duration::from_secs(600)).await;
        assert_eq!(conflicts.compare(&both, Instant::now()), []);
        advance(Duration::from_secs(1)).await;
        let since = Duration::from_secs(601);
        let lasting = DocumentConflict::Lasting {
            documents: 2,
            since,
        };
        assert_eq!(conflicts.compare(&both, Instant::now()), [lasting]);
        advance(Duration::from_secs(600)).await;
        assert_eq!(
            conflicts.compare(&both, Instant::now()),
            [],
            "it is said once"
        );
        // The deployment ends, and the next one has its own time.
        assert_eq!(conflicts.compare(&both[1..], Instant::now()), []);
        assert_eq!(conflicts.compare(&both, Instant::now()), []);
        advance(Duration::from_secs(599)).await;
        assert_eq!(conflicts.compare(&both, Instant::now()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn two_documents_with_one_revision_are_a_fault_at_once() {
        let mut conflicts = DocumentConflicts::default();
        let same = documents(&["4:aa", "4:bb"]);
        let fault = [DocumentConflict::SameRevision(4)];
        assert_eq!(conflicts.compare(&same, Instant::now()), fault);
        assert_eq!(
            conflicts.compare(&same, Instant::now()),
            [],
            "it is said once"
        );
        assert_eq!(conflicts.compare(&same[..1], Instant::now()), []);
        assert_eq!(conflicts.compare(&same, Instant::now()), fault);
        let fallbacks = documents(&["0:aa", "0:bb"]);
        assert_eq!(conflicts.compare(&fallbacks, Instant::now()), []);
    }
}
