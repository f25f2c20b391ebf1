//! The scopes that are known.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::client::scope::Scope;

/// How many scopes are kept.
const MOST: usize = 1_024;

/// Scopes by their names.
#[derive(Default)]
pub(super) struct Scopes(Mutex<HashMap<String, Arc<Scope>>>);

impl Scopes {
    /// The scope of this name. Where there are too many, one that holds nobody is forgotten, or that whose hold ends
    /// first.
    pub(super) fn find(&self, name: String) -> Arc<Scope> {
        let mut scopes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = scopes.get(&name) {
            return Arc::clone(scope);
        }
        if scopes.len() >= MOST {
            let least = scopes
                .iter()
                .min_by_key(|(_, scope)| (scope.closed_until(), Arc::strong_count(scope)))
                .map(|(name, _)| name.clone());
            if let Some(least) = least {
                scopes.remove(&least);
            }
        }
        let scope = Arc::new(Scope::new());
        scopes.insert(name, Arc::clone(&scope));
        scope
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Shows how many there are: a name may be of a customer.
impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::hold::Hold;

    #[test]
    fn one_name_is_one_scope() {
        let scopes = Scopes::default();
        let scope = |name: &str| scopes.find(name.to_owned());
        assert!(Arc::ptr_eq(&scope("a"), &scope("a")));
        assert!(!Arc::ptr_eq(&scope("a"), &scope("b")));
        assert_eq!(format!("{scopes:?}"), "Scopes(2)");
    }

    #[tokio::test(start_paused = true)]
    async fn the_scopes_that_hold_the_longest_are_kept() {
        let scopes = Scopes::default();
        for number in 0..MOST as u64 {
            let scope = scopes.find(number.to_string());
            let hold = (number != 7).then(|| Hold {
                asked: Duration::from_secs(1 + (number + 5) % 500),
                spread: Duration::ZERO,
            });
            scope.take().unwrap().answered(&[], hold);
        }
        let held = |name: &str| scopes.find(name.to_owned()).closed_until().is_some();
        scopes.find("new".to_owned());
        assert_eq!(scopes.len(), MOST);
        // 7 held nobody; with it in place again, the shortest hold and "new" are all that is newer.
        for kept in ["0", "6", "8", "499", "1023"] {
            assert!(held(kept), "{kept}");
        }
        assert!(!scopes.0.lock().unwrap().contains_key("7"));
    }
}
