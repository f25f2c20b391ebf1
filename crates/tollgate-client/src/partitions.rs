//! The known partitions.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::partition::Partition;

/// How many partitions are kept.
const MOST: usize = 1_024;

/// Partitions by their names.
#[derive(Default)]
pub(crate) struct Partitions(Mutex<HashMap<String, Arc<Partition>>>);

impl Partitions {
    /// The partition of this name, created if it is new. If there are too many, an open one is evicted first, then the one
    /// whose cooldown ends first.
    pub(crate) fn find_or_insert(&self, name: String) -> Arc<Partition> {
        let mut partitions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partition) = partitions.get(&name) {
            return Arc::clone(partition);
        }
        if partitions.len() >= MOST {
            let least = partitions
                .iter()
                .min_by_key(|(_, partition)| {
                    (partition.closed_until(), Arc::strong_count(partition))
                })
                .map(|(name, _)| name.clone());
            if let Some(least) = least {
                partitions.remove(&least);
            }
        }
        let partition = Arc::new(Partition::new());
        partitions.insert(name, Arc::clone(&partition));
        partition
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

// The number only: a name may identify a customer.
tollgate_core::debug_fields!(Partitions, it => number: it.len());

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::budgets::Cooldown;

    #[tokio::test(start_paused = true)]
    async fn the_scopes_that_hold_the_longest_are_kept() {
        let partitions = Partitions::default();
        for number in 0..1_024 {
            let partition = partitions.find_or_insert(number.to_string());
            let cooldown = (number != 7).then(|| Cooldown {
                asked: Duration::from_secs(1 + (number + 5) % 500),
                jitter: Duration::ZERO,
            });
            partition.take().unwrap().on_response(&[], cooldown);
        }
        let held = |name: &str| {
            partitions
                .find_or_insert(name.to_owned())
                .closed_until()
                .is_some()
        };
        partitions.find_or_insert("new".to_owned());
        assert_eq!(partitions.len(), 1_024);
        // 7 was open, so it was evicted.
        for kept in ["0", "6", "8", "499", "1023"] {
            assert!(held(kept), "{kept}");
        }
        assert!(!partitions.0.lock().unwrap().contains_key("7"));
    }

    #[test]
    fn of_open_scopes_one_without_requests_goes_first() {
        let partitions = Partitions::default();
        let used: Vec<_> = (0..1_024)
            .map(|number| partitions.find_or_insert(number.to_string()))
            .enumerate()
            .filter(|(number, _)| *number != 500)
            .collect();
        partitions.find_or_insert("new".to_owned());
        let known = partitions.0.lock().unwrap();
        assert_eq!((known.len(), used.len()), (1_024, 1_023));
        assert!(!known.contains_key("500"));
    }
}
