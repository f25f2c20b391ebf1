//! What tests that count to the unit ask by.

use std::time::Duration;

use tollgate_core::{Check, Decision, Limiter, Outcome};
use tollgate_redis::{Keys, RedisStore};

/// A store that gives no answer up.
///
/// # Panics
///
/// The address is not valid.
pub async fn patient_store(address: &str) -> RedisStore {
    let store = RedisStore::builder(address, "patient", Keys::plain())
        .deadline(Duration::from_secs(20))
        .connect()
        .expect("a valid address");
    store.connected().await;
    store
}

/// Asks, and wants an answer from the store.
///
/// # Panics
///
/// The store has not answered.
pub async fn acquire(limiter: &Limiter, checks: &[Check]) -> Decision {
    let decision = limiter.acquire(checks).await;
    let answered = decision
        .verdicts()
        .iter()
        .all(|verdict| verdict.outcome() == Outcome::NotDecided || verdict.has_numbers());
    assert!(answered, "the store has not answered: {decision:?}");
    decision
}
