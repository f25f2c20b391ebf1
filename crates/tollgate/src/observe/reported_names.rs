//! Which names were reported.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};

/// Names that were reported, a few at most: they may come from clients.
#[derive(Debug, Default)]
pub(crate) struct ReportedNames([AtomicU64; MOST]);

/// The most names that are reported.
const MOST: usize = 8;

impl ReportedNames {
    /// Whether a name is to be reported: it was not yet, and not too many others were.
    ///
    /// Reads before it writes: the many later calls must not share a write.
    pub(crate) fn is_first(&self, name: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        // 0 is a place that is free.
        let hash = hasher.finish() | 1;
        for place in &self.0 {
            let known = place.load(Ordering::Relaxed);
            if known == hash {
                return false;
            }
            if known != 0 {
                continue;
            }
            let order = Ordering::Relaxed;
            match place.compare_exchange(0, hash, order, order) {
                Ok(_) => return true,
                Err(other) if other == hash => return false,
                Err(_) => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_reported_once_and_no_more_than_a_few() {
        let names = ReportedNames::default();
        assert!(names.is_first("gold"));
        assert!(!names.is_first("gold"));
        let reported = (0..100).filter(|n| names.is_first(&format!("plan-{n}")));
        assert_eq!(reported.count(), MOST - 1);
        assert!(!names.is_first("gold"));
    }
}
