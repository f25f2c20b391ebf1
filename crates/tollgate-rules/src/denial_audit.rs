//! The audit of denials, for rules that ask for it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tollgate_core::{SECOND, Tick};

use crate::{
    audit::{AuditKind, AuditRecord, AuditSinks},
    author::Author,
};

/// The most records of a rule in a second. The others are counted.
const MOST: u64 = 10;

/// Records denials by rules with `audit = true`, at most [`MOST`] a second for each.
#[derive(Default)]
pub(crate) struct DenialAudit {
    sinks: AuditSinks,
    recent: Mutex<HashMap<Box<str>, Recent>>,
}

/// The denials of a rule in a second.
#[derive(Clone, Copy, Default)]
struct Recent {
    second: u64,
    recorded: u64,
    /// Since the last record.
    left_out: u64,
}

impl DenialAudit {
    pub(crate) fn new(sinks: AuditSinks) -> Self {
        Self {
            sinks,
            recent: Mutex::default(),
        }
    }

    /// A rule has denied a request. `client` is asked for only if it is recorded: the start of a hash of the key.
    pub(crate) fn denied(&self, rule: &str, now: Tick, client: impl FnOnce() -> Option<String>) {
        let Some(left_out) = self.is_recorded(rule, now) else {
            return;
        };
        let mut lines = vec![match client() {
            Some(client) => format!("{rule}: a request of client {client} is denied"),
            None => format!("{rule}: a request is denied"),
        }];
        if left_out > 0 {
            lines.push(format!(
                "{rule}: {left_out} earlier denials were not recorded"
            ));
        }
        let author = Author::new(format!("rule {rule}"));
        self.sinks
            .record(&AuditRecord::new(AuditKind::Denied, author, lines));
    }

    /// How many were left out since the last record, if this one is recorded.
    fn is_recorded(&self, rule: &str, now: Tick) -> Option<u64> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.contains_key(rule) {
            recent.insert(rule.into(), Recent::default());
        }
        let recent = recent.get_mut(rule)?;
        let second = now / SECOND.as_micros() as u64;
        if recent.second != second {
            (recent.second, recent.recorded) = (second, 0);
        }
        if recent.recorded >= MOST {
            recent.left_out += 1;
            return None;
        }
        recent.recorded += 1;
        Some(std::mem::take(&mut recent.left_out))
    }
}

tollgate_core::debug_fields!(DenialAudit, it => sinks: it.sinks);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::audit::AuditSink;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl AuditSink for Kept {
        fn record(&self, record: &AuditRecord) {
            self.0.lock().expect("whole").push(record.lines.join(", "));
        }
    }

    #[test]
    fn a_flood_of_denials_is_counted_and_not_recorded() {
        let kept = Kept::default();
        let mut sinks = AuditSinks::default();
        sinks.add(kept.clone());
        let audit = DenialAudit::new(sinks);
        let second = |n: u64| 1_767_268_800_000_000 + n * 1_000_000;
        for n in 0..1_000 {
            audit.denied("log-in", second(0) + n, || Some("1a2b3c4d".into()));
        }
        audit.denied("other", second(0), || None);
        audit.denied("log-in", second(1), || Some("5e6f7a8b".into()));
        audit.denied("log-in", second(2), || None);
        let kept = kept.0.lock().expect("whole");
        assert_eq!(kept.len(), 13);
        assert_eq!(kept[9], "log-in: a request of client 1a2b3c4d is denied");
        assert_eq!(kept[10], "other: a request is denied");
        assert_eq!(
            kept[11],
            "log-in: a request of client 5e6f7a8b is denied, log-in: 990 earlier denials were not recorded"
        );
        assert_eq!(kept[12], "log-in: a request is denied");
    }
}
