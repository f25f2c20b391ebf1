//! The queues in which acquires wait: one for each rule and key.
//!
//! An acquire stands where it lacks something, and nowhere else: one that waits for a slot of its tenant keeps no other tenant from those
//! of all. It may take units when no earlier one stands in a queue of what it needs, and those that it lacks then say where it stands
//! next, by the number of its arrival. The earliest of all is in front wherever it stands, so no two wait for each other.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    error::Error,
    fmt,
    sync::Arc,
    task::{Poll, Waker},
};

use smallvec::SmallVec;

use crate::{
    check::Check,
    error::RuleError,
    key::Fingerprint,
    rule::{MAX_WAITING, Rule},
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

/// How many may wait at once on one limiter and those before it, for a request to join them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    in_all: usize,
    /// Above that, the rest is for the first of each queue: clients with a few keys must not keep all others out.
    behind_a_first: usize,
}

/// Where a request waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stands {
    /// In no queue: it waits for the time that it was given.
    InNone,
    First,
    Behind,
}

/// By the rule's name: rules that replace others have the same queues.
type QueueKey = (Arc<str>, Fingerprint);

type QueueKeys = SmallVec<[QueueKey; 2]>;

type Queues = HashMap<QueueKey, WaitQueue>;

/// The queues in which acquires wait, and how many do, under the rules in force or those that they have replaced: rules that change often
/// do not make room for more.
#[derive(Default)]
pub(crate) struct WaitQueues {
    queues: Mutex<Queues>,
    /// How many acquires wait for their units. Changed under the lock, and read without it by requests that do not wait.
    queued: AtomicU64,
    /// How many have ever arrived. Changed under the lock.
    arrived: AtomicU64,
    /// Locked after the queues.
    counts: Mutex<HashMap<Counted, usize>>,
}

/// What waiting requests are counted by.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Counted {
    InQueues,
    OfRule(Arc<str>),
    OfKey(Arc<str>, Fingerprint),
}

/// The counts that a waiting request is part of.
type CountedBy = SmallVec<[Counted; 4]>;

crate::debug_fields!(WaitQueues, it => queued: it.queued);

/// The waiters of one queue by number, in the order of arrival.
type WaitQueue = BTreeMap<u64, Option<Waker>>;

/// The place of an acquire in the order of arrival. Dropping it lets the next waiters move up.
pub(crate) struct Permit<'a> {
    queues: &'a WaitQueues,
    /// The queues of all that it needs.
    keys: QueueKeys,
    number: u64,
    _place: WaitPlace<'a>,
}

impl WaitQueues {
    /// Stands in all queues of what these checks need, until it is known what it lacks.
    pub(crate) fn enter(&self, rules: &[Rule], checks: &[Check]) -> Result<Permit<'_>, WaitError> {
        let keys = queue_keys(rules, checks);
        let queues = lock(&self.queues);
        let stands = match keys.iter().any(|key| queues.contains_key(key)) {
            true => Stands::Behind,
            false => Stands::First,
        };
        let place = self.count(rules, checks, stands)?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        let permit = Permit {
            queues: self,
            keys,
            number: self.arrived.fetch_add(1, Ordering::Relaxed),
            _place: place,
        };
        permit.stand_in(queues, &permit.keys, None);
        Ok(permit)
    }

    /// Counts a request that waits by the rules that let it wait, or else by all, and by their keys; and in the queues, if it is to stand
    /// in one.
    pub(crate) fn count(
        &self,
        rules: &[Rule],
        checks: &[Check],
        stands: Stands,
    ) -> Result<WaitPlace<'_>, WaitError> {
        let waited_for = rules_to_wait_for(rules, checks);
        let mut counts = lock(&self.counts);
        let is_full = |by: &Counted, max| counts.get(by).is_some_and(|now| *now >= max);
        let mut counted = CountedBy::new();
        if stands != Stands::InNone {
            // What the rules say, and at least the default.
            let max = || waited_for.iter().map(|(rule, _)| rule.settings.max_waiting);
            let in_all = max()
                .map(|it| it.in_all)
                .fold(MAX_WAITING.in_all, usize::max);
            let behind_a_first = max().map(|it| it.per_key).fold(in_all / 2, usize::max);
            let most = match stands {
                Stands::Behind => behind_a_first,
                _ => in_all,
            };
            if is_full(&Counted::InQueues, most) {
                let room = Room {
                    in_all,
                    behind_a_first,
                };
                return Err(WaitError(Kind::LimiterFull(room)));
            }
            counted.push(Counted::InQueues);
        }
        for (rule, check) in waited_for {
            let max = rule.settings.max_waiting;
            let name = || Arc::clone(rule.shared_name());
            let of_key = Counted::OfKey(name(), check.key());
            for (by, max) in [(of_key, max.per_key), (Counted::OfRule(name()), max.in_all)] {
                if is_full(&by, max) {
                    return Err(WaitError(Kind::QueueFull(max)));
                }
                if !counted.contains(&by) {
                    counted.push(by);
                }
            }
        }
        for by in &counted {
            *counts.entry(by.clone()).or_default() += 1;
        }
        Ok(WaitPlace {
            queues: self,
            counted,
        })
    }

    /// Whether no acquire waits for any of what these checks need.
    #[inline]
    pub(crate) fn is_free(&self, rules: &[Rule], checks: &[Check]) -> bool {
        self.queued.load(Ordering::Relaxed) == 0 || {
            let keys = queue_keys(rules, checks);
            let queues = lock(&self.queues);
            !keys.iter().any(|key| queues.contains_key(key))
        }
    }
}

/// The rules that let a request with these checks wait, with their checks; all that are enforced if there is none.
pub(crate) fn rules_to_wait_for<'a>(
    rules: &'a [Rule],
    checks: &'a [Check],
) -> SmallVec<[(&'a Rule, &'a Check); 2]> {
    let all = || {
        let taking = checks.iter().filter(|check| check.cost() > 0);
        let of_rule =
            taking.filter_map(|check| Some((rules.get(usize::from(check.rule()))?, check)));
        of_rule.filter(|(rule, _)| rule.is_enforced())
    };
    let waiting = all().filter(|(rule, _)| rule.at_most_wait().is_some());
    let waiting: SmallVec<_> = waiting.collect();
    match waiting.is_empty() {
        true => all().collect(),
        false => waiting,
    }
}

/// The place of a request that waits. It is free again when this is dropped.
#[must_use = "the place is free again when this is dropped"]
pub(crate) struct WaitPlace<'a> {
    queues: &'a WaitQueues,
    counted: CountedBy,
}

impl Drop for WaitPlace<'_> {
    fn drop(&mut self) {
        let mut counts = lock(&self.queues.counts);
        for by in self.counted.drain(..) {
            if let Entry::Occupied(mut count) = counts.entry(by) {
                match *count.get() {
                    0 | 1 => drop(count.remove()),
                    _ => *count.get_mut() -= 1,
                }
            }
        }
    }
}

impl Permit<'_> {
    /// Ready if no earlier acquire stands in a queue of what this one needs. Otherwise it stands there as well, and `waker` is woken in
    /// front.
    pub(crate) fn poll_front(&self, waker: &Waker) -> Poll<()> {
        let queues = lock(&self.queues.queues);
        let is_behind = |key: &&QueueKey| {
            let first = queues.get(*key).and_then(BTreeMap::first_key_value);
            first.is_some_and(|(first, _)| *first < self.number)
        };
        let behind: QueueKeys = self.keys.iter().filter(is_behind).cloned().collect();
        if behind.is_empty() {
            return Poll::Ready(());
        }
        self.stand_in(queues, &behind, Some(waker));
        Poll::Pending
    }

    /// It lacks what these checks need, and no more.
    pub(crate) fn lacks(&self, rules: &[Rule], checks: &[Check]) {
        let keys = queue_keys(rules, checks);
        self.stand_in(lock(&self.queues.queues), &keys, None);
    }

    /// Stands in these queues, and in no other.
    fn stand_in(
        &self,
        mut queues: MutexGuard<'_, Queues>,
        keys: &[QueueKey],
        waker: Option<&Waker>,
    ) {
        let (mut gone, mut next) = (QueueWakers::new(), QueueWakers::new());
        for key in &self.keys {
            if keys.contains(key) {
                let queue = queues.entry(key.clone()).or_default();
                gone.push(queue.insert(self.number, waker.cloned()).flatten());
            } else if let Some(queue) = queues.get_mut(key)
                && let Some(left) = queue.remove(&self.number)
            {
                gone.push(left);
                match queue.first_entry() {
                    Some(mut front) if *front.key() > self.number => {
                        next.push(front.get_mut().take());
                    }
                    Some(_) => {}
                    None => drop(queues.remove(key)),
                }
            }
        }
        // Without the lock: with the last waker of a task its future may go, and a permit with it.
        drop(queues);
        drop(gone);
        next.into_iter().flatten().for_each(Waker::wake);
    }
}

type QueueWakers = SmallVec<[Option<Waker>; 2]>;

/// The queues of what these checks need, but for units that are waited for in the store.
fn queue_keys(rules: &[Rule], checks: &[Check]) -> QueueKeys {
    let needed = rules_to_wait_for(rules, checks).into_iter();
    needed
        .filter(|(rule, _)| rule.has_slots() || rule.at_most_wait().is_none())
        .map(|(rule, check)| (Arc::clone(rule.shared_name()), check.key()))
        .collect()
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let queues = lock(&self.queues.queues);
        self.queues.queued.fetch_sub(1, Ordering::Relaxed);
        self.stand_in(queues, &[], None);
    }
}

/// Why an acquire that waits took nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct WaitError(pub(crate) Kind);

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As many wait for a rule, or a key of it, as may.
    QueueFull(usize),
    LimiterFull(Room),
    TimedOut,
    Unknown(RuleError),
}

/// The kinds of [`WaitError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitErrorKind {
    /// Too many are waiting: for the same rules and keys, or on this limiter.
    QueueFull,
    /// The patience ran out in the queue.
    TimedOut,
    /// There is no rule of this name.
    UnknownRule,
}

impl WaitError {
    /// What happened.
    #[must_use]
    pub fn kind(&self) -> WaitErrorKind {
        match self.0 {
            Kind::QueueFull(_) | Kind::LimiterFull(_) => WaitErrorKind::QueueFull,
            Kind::TimedOut => WaitErrorKind::TimedOut,
            Kind::Unknown(_) => WaitErrorKind::UnknownRule,
        }
    }
}

impl From<RuleError> for WaitError {
    fn from(unknown: RuleError) -> Self {
        Self(Kind::Unknown(unknown))
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::QueueFull(max) => write!(
                f,
                "{max} are waiting for a rule, or for one of its keys, already; turn the caller away, or let more wait by \
                 Rule::max_waiting"
            ),
            Kind::LimiterFull(Room {
                in_all,
                behind_a_first,
            }) => write!(
                f,
                "too many are waiting on this limiter already (at most {in_all}, and {behind_a_first} behind others); \
                 turn the caller away, or let more wait by Rule::max_waiting"
            ),
            Kind::TimedOut => f.write_str("the patience ran out in the queue"),
            Kind::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

// As it is displayed: it comes out of `main`.
crate::debug_fields!(WaitError as Display);

impl Error for WaitError {}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Wake};

    use super::*;
    use crate::{quota::Quota, time::SECOND};

    fn rules() -> [Rule; 2] {
        ["one", "other"].map(|name| Rule::new(name, Quota::gcra(1, SECOND)))
    }

    fn check(rule: u16, key: usize) -> Check {
        Check::new(rule, Fingerprint::from_bits(key as u128), 1)
    }

    #[test]
    fn nothing_is_kept_of_a_queue_that_is_empty() {
        let (queues, rules) = (WaitQueues::default(), rules());
        let [one, other] = [[check(0, 1)], [check(0, 2)]];
        let enter = |checks| queues.enter(&rules, checks).expect("there is room");
        let first = enter(&one);
        let second = enter(&one);
        let alone = enter(&other);
        let counted = queues.count(&rules, &one, Stands::InNone);
        let place = counted.expect("there is room");
        assert_eq!(queues.queued.load(Ordering::Relaxed), 3);
        drop(first);
        let is_free = |checks: &[Check]| queues.is_free(&rules, checks);
        assert!(!is_free(&one));
        drop(second);
        assert!(is_free(&one) && !is_free(&other));
        drop(alone);
        assert!(is_free(&other));
        assert_eq!(queues.queued.load(Ordering::Relaxed), 0);
        assert_eq!(lock(&queues.queues).len(), 0);
        // The place is counted by its key and its rule.
        let counts = || lock(&queues.counts).clone();
        assert_eq!(counts().into_values().collect::<Vec<_>>(), [1, 1]);
        drop(place);
        assert!(counts().is_empty());
    }

    #[test]
    fn a_waker_may_take_a_permit_along_when_it_goes() {
        struct Task {
            _permit: Permit<'static>,
        }
        impl Wake for Task {
            fn wake(self: Arc<Self>) {}
        }
        let (queues, rules): (&'static WaitQueues, _) = (Box::leak(Box::default()), rules());
        let enter = |key| {
            let permit = queues.enter(&rules, &[check(0, key)]);
            permit.expect("there is room")
        };
        let task_with = |permit| Waker::from(Arc::new(Task { _permit: permit }));
        let (_first, second) = (enter(1), enter(1));
        assert!(second.poll_front(&task_with(enter(2))).is_pending());
        // It takes the place of the other waker.
        assert!(second.poll_front(&task_with(enter(3))).is_pending());
        assert!(queues.is_free(&rules, &[check(0, 2)]));
        drop(second);
        assert!(queues.is_free(&rules, &[check(0, 3)]));
    }

    #[test]
    fn who_waits_by_rules_that_were_replaced_is_counted_and_comes_first() {
        let max = |rule: Rule| rule.wait(SECOND).max_waiting(2, 3);
        let [one, other] = ["one", "other"].map(|name| max(Rule::new(name, Quota::concurrent(1))));
        let queues = WaitQueues::default();
        let held = [1, 1].map(|key| queues.enter(std::slice::from_ref(&one), &[check(0, key)]));
        // The rule has another place by now.
        let rules = [other, one];
        assert!(!queues.is_free(&rules, &[check(1, 1)]) && queues.is_free(&rules, &[check(0, 1)]));
        let full = |key| queues.enter(&rules, &[check(1, key)]).is_err();
        assert!(full(1), "two wait for the key");
        let third = queues.enter(&rules, &[check(1, 2)]);
        assert!(full(3), "three wait for the rule");
        drop((held, third));
        assert!(!full(1) && lock(&queues.counts).is_empty());
    }

    #[test]
    fn a_request_is_counted_once_by_the_rules_that_let_it_wait_or_else_by_all() {
        let rule = |name: &'static str, in_all| {
            Rule::new(name, Quota::gcra(1, SECOND)).max_waiting(9, in_all)
        };
        let waits = |name, in_all| rule(name, in_all).wait(SECOND);
        let rules = [waits("waits", 3), rule("other", 1), waits("asks", 2)];
        let queues = WaitQueues::default();
        let free = check(2, 1).with_cost(0);
        for (checks, most) in [
            (&[check(0, 1), check(1, 1), free][..], 3),
            (&[check(0, 1), check(0, 2)], 3),
            (&[check(0, 1), check(2, 1)], 2),
            (&[check(1, 1), free], 1),
            (&[check(1, 1)], 1),
        ] {
            for _ in 0..2 {
                let place = || queues.count(&rules, checks, Stands::InNone).ok();
                let places: Vec<_> = std::iter::from_fn(place).take(5).collect();
                assert_eq!(places.len(), most, "{checks:?}");
                // They are free again when they are dropped.
            }
        }
    }
}
