//! A check by the name of a client, as a worker makes it: the key, its fingerprint, the decision.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tollgate::{
    Check, DAY, Decision, HOUR, Limiter, MemoryStore, Quota, Rule, RuleError, SECOND, Store,
    key::{KeyBuf, PartKind},
};
use tollgate_core::{
    Pending, Step,
    journal::{Base, Journal},
};

/// A quota that no bench uses up: one unit each 100 µs, four thousand million at once. A check takes less time, also under valgrind, so
/// that the state of a key that is asked again and again lasts.
pub const WIDE: Quota = Quota::gcra(10_000, SECOND).burst(4_000_000_000);

/// A quota that never denies, whose unit takes no whole number of microseconds.
pub const UNEVEN: Quota = Quota::gcra(999_983, SECOND).burst(1_000_000_000);

/// A quota that is used up after the first request.
pub const TIGHT: Quota = Quota::gcra(1, HOUR).burst(1);

/// The time of one unit of [`LASTING`].
pub const LASTING_INTERVAL: Duration = Duration::from_secs(30);

/// The most units of [`LASTING`].
pub const LASTING_BURST: u32 = 5_000_000;

/// A quota that no bench uses up, whose states stay live: nothing that a bench has taken comes back while it runs, so
/// that no state is forgotten and looked up in vain.
pub const LASTING: Quota = Quota::gcra(1, LASTING_INTERVAL).burst(LASTING_BURST as u64);

/// A window that no bench uses up.
pub const DAILY: Quota = Quota::fixed_window(1_000_000_000_000, DAY);

/// The account of a key of benches.
#[must_use]
pub fn account(key: &KeyBuf) -> String {
    let part = key.parts().last().map(|(_, part)| part);
    String::from_utf8_lossy(part.unwrap_or_default()).into_owned()
}

/// Makes a journal write for a ledger that knows nothing from before.
pub fn note(journal: &Journal) {
    journal.attach(200_000, |_| Pending::new(async { Some(Base::default()) }));
}

/// A limiter with one or more equal rules on a store of its own.
#[derive(Clone, Debug)]
pub struct Checker {
    limiter: Limiter,
}

impl Checker {
    /// `rules` rules of this quota.
    ///
    /// # Errors
    ///
    /// A quota that cannot be used.
    pub fn new(quota: Quota, rules: usize) -> Result<Self, RuleError> {
        Self::on(MemoryStore::new(), quota, rules)
    }

    /// The same on another store.
    ///
    /// # Errors
    ///
    /// A quota that cannot be used.
    pub fn on(store: impl Store, quota: Quota, rules: usize) -> Result<Self, RuleError> {
        let rules = (0..rules).map(|i| Rule::new(format!("rule-{i}"), quota));
        Self::of(store, rules)
    }

    fn of(store: impl Store, rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleError> {
        let limiter = Limiter::new(store, rules)?;
        Ok(Self { limiter })
    }

    /// A rule of this quota, and one of slots that no bench uses up.
    ///
    /// # Errors
    ///
    /// A quota that cannot be used.
    pub fn with_slots(quota: Quota) -> Result<Self, RuleError> {
        let rules = [
            Rule::new("rate", quota),
            Rule::new("at-once", Quota::concurrent(1_000)),
        ];
        Self::of(MemoryStore::new(), rules)
    }

    /// One durable rule.
    ///
    /// # Errors
    ///
    /// A quota that cannot be used.
    pub fn durable() -> Result<Self, RuleError> {
        let rule = Rule::new("rate", DAILY).durable(account);
        let checker = Self::of(MemoryStore::new(), [rule])?;
        note(checker.limiter.journal());
        Ok(checker)
    }

    /// One rule of this quota whose requests wait for up to a second.
    ///
    /// # Errors
    ///
    /// A quota that cannot be used.
    pub fn waiting(quota: Quota) -> Result<Self, RuleError> {
        let rule = Rule::new("rate", quota).wait(SECOND);
        Self::of(MemoryStore::new(), [rule])
    }

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Whether the first rule lets one unit of this client pass.
    #[inline]
    #[must_use]
    pub fn one(&self, name: &str) -> bool {
        let mut key = KeyBuf::new();
        key.push(PartKind::VALUE, name);
        self.decide(&[self.limiter.check_at(0, &key, 1)])
    }

    /// Whether the first two rules let one unit of this client pass, decided together. Slots go back at once.
    #[inline]
    #[must_use]
    pub fn two(&self, name: &str) -> bool {
        let mut key = KeyBuf::new();
        key.push(PartKind::VALUE, name);
        self.decide(&[
            self.limiter.check_at(0, &key, 1),
            self.limiter.check_at(1, &key, 1),
        ])
    }

    #[inline]
    fn decide(&self, checks: &[Check]) -> bool {
        match self.limiter.acquire(checks) {
            Step::Ready(ref decision) => decision.is_allowed(),
            Step::Wait(answer) => is_allowed_later(answer),
        }
    }
}

/// What a ledger is asked for once.
fn is_allowed_later(mut answer: Pending<Decision>) -> bool {
    let answer = Pin::new(&mut answer).poll(&mut Context::from_waker(Waker::noop()));
    matches!(answer, Poll::Ready(decision) if decision.is_allowed())
}

#[inline]
pub(crate) fn key_of(name: &str) -> KeyBuf {
    let mut key = KeyBuf::new();
    key.push(PartKind::VALUE, name);
    key
}
