//! A store, and a rule set on it.

use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::{
    check::Check,
    credits::{Balance, CreditChange, CreditState},
    decision::Decision,
    error::{RuleError, RuleErrorKind, StoreError, StoreErrorKind},
    hold::{Hold, Holds, Settlement},
    key::{Fingerprint, KeyBuf},
    reservation::{Reservation, Reserved},
    rule::{Mode, Rule},
    rule_set::RuleSet,
    step::Step,
    store::registry::RuleRegistry,
    time::Clock,
};

/// What a store keeps of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Keys with a live state: one that differs from a fresh one. Where a large table holds expired entries, this is an
    /// estimate from a sample.
    pub keys: u64,
    /// Bytes allocated for states.
    pub bytes: u64,
    /// Evictions of live states because of the bound. Each of them let a client start anew: the bound is too small, or a
    /// flood is under way.
    pub evicted_live: u64,
    /// [Blocks](crate::Rule::block) in force that were evicted because of the bound: each freed its key early.
    pub evicted_blocks: u64,
    /// States that were created: how often a key came that had no state.
    pub new_keys: u64,
}

/// Takes a charge in place of a store, and says how many of its units lapse.
pub type ChargeFallback = Arc<dyn Fn(&Check, u64) -> u64 + Send + Sync>;

/// Where state lives.
///
/// A store is an object: the layer and the limiter have no type parameter for it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    note = "take `MemoryStore::new()`, or a store of another tollgate crate"
)]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Binds a rule set to its states in this store.
    ///
    /// State is found by the rules' names: what was used under a name stays used, also when the quota changed.
    ///
    /// A [`Limiter`](crate::Limiter) consults the [registry](Self::registry) first. A direct call does not: two quotas of one
    /// name are then counted on one state.
    ///
    /// # Errors
    ///
    /// A rule that this store cannot serve.
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError>;

    /// Which quotas live limiters and layers on this store count under each rule name: one for the store and its clones. A
    /// store in front of another one hands out that one's.
    fn registry(&self) -> &RuleRegistry;
}

/// Who hears what a settlement has done otherwise than it was told: what a balance has paid of a charge, and what stays taken for a
/// [repeat](crate::Rule::idempotent) of its request.
#[derive(Default)]
pub struct PaidHook(OnceLock<Box<Hear>>);

type Hear = dyn Fn(&Hold, Option<u64>) + Send + Sync;

impl PaidHook {
    /// From now on it is told. The first one stays.
    pub(crate) fn set(&self, hear: impl Fn(&Hold, Option<u64>) + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(hear));
    }

    /// Tells it what a balance has paid of a charge; `None`: the hold, all of which was to come back, stays taken.
    pub fn tell(&self, hold: &Hold, paid: Option<u64>) {
        if let Some(hear) = self.0.get() {
            hear(hold, paid);
        }
    }
}

crate::debug_fields!(PaidHook);

/// A rule set on a store. Object safe; every future it hands out borrows nothing.
///
/// A store never fails a call, it fails checks: a check that could not be decided has the outcome
/// [`Failed`](crate::Outcome::Failed), and the [`Limiter`](crate::Limiter) resolves it by its rule's answer to a store
/// failure.
pub trait RuleStore: Any + fmt::Debug + Send + Sync {
    /// The rules.
    fn rules(&self) -> &Arc<RuleSet>;

    /// Whether a check can fail. A store that cannot needs no fallback.
    fn can_fail(&self) -> bool {
        true
    }

    /// The clock of the process, in microseconds since the epoch. By it limits of [none](crate::Quota::none) end, a ledger has its days
    /// and the windows of later charges, and shares of quotas are counted while the store fails. Default: the system's.
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// Within which time an answer comes, or the failure that takes its place. Default: one second.
    fn answers_within(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Whether it can do what a rule wants. Default: all but these three.
    ///
    /// - To count [slots](crate::Quota::concurrent): the verdict that gives some says their [number](crate::Verdict::of_slots).
    /// - To keep balances of [credits](crate::Rule::credits).
    /// - To let requests [wait](crate::Rule::wait) for units: [`acquire`](Self::acquire) then decides by the rules of
    ///   [the queue](crate::algorithm::gcra#waiting), and a decision that is [delayed](Decision::delayed) has its places.
    fn supports(&self, rule: &Rule) -> bool {
        !(rule.has_slots() || rule.has_credits() || rule.at_most_wait().is_some())
    }

    /// What stands for `key` in this store, for the rule at index `rule`.
    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint;

    /// Decides all checks and takes all or nothing, in one atomic step.
    ///
    /// Checks on one state are folded first: their costs are summed. Verdicts are in the order of the checks. Checks of one
    /// rule and key under two plans are [denied](Check::deny_two_plans).
    ///
    /// # Cancel safety
    ///
    /// Dropping the answer does not undo the take.
    fn acquire(&self, checks: &[Check]) -> Step<Decision>;

    /// The same for a request that waits for no longer than `patience`, also where its rules would let it
    /// [wait](crate::Rule::wait) longer. Default: [`acquire`](Self::acquire), for stores where none waits, and which never answer that they
    /// have [forgotten](crate::Verdict::forgotten): `bases` are not looked at.
    ///
    /// `bases` are checks of [durable](crate::Rule::durable) rules, each with the units that its key has used in its present window, by
    /// the ledger: the store begins with them where it has nothing of the key, instead of answering that it has forgotten.
    fn acquire_within(
        &self,
        checks: &[Check],
        _patience: Duration,
        _bases: &[(Check, u64)],
    ) -> Step<Decision> {
        self.acquire(checks)
    }

    /// Decides as [`acquire`](Self::acquire) does, and takes nothing.
    fn peek(&self, checks: &[Check]) -> Step<Decision>;

    /// Settles units that were taken. Never blocks on I/O, and may be called from `Drop`: a settlement that cannot be sent is
    /// lost, and counted as such.
    ///
    /// The holds are those of one request, for stores where one of them says where the states of the others lie. One whose
    /// check has a cost of 0 does only that: it is not settled.
    fn settle(&self, holds: &[Hold], how: Settlement);

    /// Says who takes a [charge](Settlement::Charge) of a rule with [debt](crate::Rule::debt) that certainly does not count here: the
    /// local share. One that may have been counted [lapses](Self::lapsed_units), so that none is charged twice. The last call counts.
    /// Default: nothing, for stores that cannot fail.
    fn set_charge_fallback(&self, _charge: ChargeFallback) {}

    /// Forgets what the keys of these checks have used, and says whether anything was kept of them. What other processes hold
    /// in advance stays counted.
    ///
    /// The checks are those of one request, for stores where one of them says where the states of the others lie. One with a
    /// cost of 0 does only that: its own state stays. Other costs do not matter, nor do plans.
    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>>;

    /// Changes the balance of a check's rule and key, or tells it. The cost and the plan of the check do not matter.
    fn credits(&self, _check: &Check, _change: CreditChange) -> Step<Result<Balance, StoreError>> {
        Step::Ready(Err(StoreError::new(
            StoreErrorKind::Misconfigured,
            "this store keeps no balances of credits",
        )))
    }

    /// Gives the key a balance that a ledger has, unless it has one that has not ended. [`Balance::changed`] are its units then.
    fn restore_credits(
        &self,
        check: &Check,
        _state: &CreditState,
    ) -> Step<Result<Balance, StoreError>> {
        self.credits(check, CreditChange::Query)
    }

    /// Whom it tells what balances pay of the charges of [durable](crate::Rule::durable) rules, and what stays taken for repeats, if it
    /// keeps either.
    fn paid(&self) -> Option<&PaidHook> {
        None
    }

    /// Whether slots go back by their numbers, to [`release`](Self::release). Otherwise its decisions [hold](crate::Decision::set_slots)
    /// all that they give, as those of memory do.
    fn releases_slots(&self) -> bool {
        true
    }

    /// Returns slots of a request that has ended. Called once for each that was given, also from `Drop`: it never blocks.
    fn release(&self, _slots: &[Hold]) {}

    /// Whether these slots were forgotten while their request ran: others may have been given them. It never blocks.
    fn is_outlived(&self, _slot: &Hold) -> bool {
        false
    }

    /// How often a request that waits for slots asks again, because some come back without [waking](super::wake) it. `None`: all of
    /// them wake it, and so do units that come back before they refill. Default: each 100 ms.
    fn asks_for_slots_every(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    /// A ledger has released the units of a hold, whose [reservation](crate::types::Reservation) with this id was open after its
    /// term: they come back. Default: [`settle`](Self::settle), for stores whose settlements no ledger misses.
    fn release_reserved(&self, _id: u128, hold: &Hold) {
        self.settle(&[*hold], Settlement::Refund(hold.check.cost()));
    }

    /// What keeps [reservations](crate::types::Reservation), if the store does.
    fn reservations(&self) -> Option<&dyn ReservationStore> {
        None
    }

    /// Called when the last limiter and layer with these rules is dropped, or when other rules have
    /// [taken their place](crate::Limiter::replacing): from then on the store holds nothing in advance for these rules, except
    /// what other rules in use hold too. Leases go back and local usage is reported, without waiting for it. Requests and
    /// tickets that are still under way may be decided and
    /// settle afterwards.
    fn retire(&self) {}

    /// The number of instances known to share this store; 0 if unknown.
    ///
    /// Called when checks have failed. It answers at once, with the last known number, for as long as the outage lasts. A
    /// store that has just restarted must not report fewer instances than there are: local shares are 1/N of this number.
    fn instances(&self) -> u32 {
        0
    }

    /// What is kept of the rule at index `rule`, where it is known without I/O.
    fn usage(&self, _rule: u16) -> Option<Usage> {
        None
    }

    /// The same for its counters alone, whatever its keys and bytes are. It is called on any thread: a store that reads a clock in
    /// [`usage`](Self::usage) does not do so here, because that of a test may be the clock of one thread.
    fn usage_counters(&self, rule: u16) -> Option<Usage> {
        self.usage(rule)
    }

    /// Units of requests that [waited](crate::Rule::wait) for the rule at index `rule` and gave up, and that could not go back
    /// because others were behind them; under a rule with [debt](crate::Rule::debt), units that were charged beyond it, or in vain. As
    /// far as this process knows, and since it knows the rule.
    fn lapsed_units(&self, _rule: u16) -> u64 {
        0
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        (**self).bind(rules)
    }

    fn registry(&self) -> &RuleRegistry {
        (**self).registry()
    }
}

// What a store does for reservations.

/// A rule set on a store that keeps open records of [reservations](crate::types::Reservation). Where there is no record, nothing is
/// done, and the answer is [`gone`](crate::store::gone).
pub trait ReservationStore {
    /// Opens a record of what a request holds, which ends after `term`, and writes it as a text, which is not to be guessed. Slots are
    /// counted for the record as well until it ends: those of the request go back when the answer is there.
    fn reserve(&self, reserved: Reserved, term: Duration) -> Step<Result<Reservation, StoreError>>;

    /// What a text says, for the rules as they are here. It need not know whether the record is there.
    ///
    /// # Errors
    ///
    /// The text is [not one](crate::store::foreign) of this store, or a rule is gone.
    fn reserved(&self, text: &Reservation) -> Result<Reserved, StoreError>;

    /// Takes the record away, frees its slots, and settles units, in one step. Each of the `settlements` is of some of the reserved holds,
    /// and how all of these are settled; those of a cost of 0 only say where the states of the others lie.
    fn redeem(
        &self,
        reserved: &Reserved,
        settlements: &[(Holds, Settlement)],
    ) -> Step<Result<(), StoreError>>;

    /// Lets the record and its slots end `term` from now.
    fn extend(&self, reserved: &Reserved, term: Duration) -> Step<Result<(), StoreError>>;
}

// Rules that want more of a store than it can do.

/// Refuses rules that this store, which they are bound to, cannot keep.
pub(crate) fn refuse_unsupported(store: &dyn RuleStore) -> Result<(), RuleError> {
    let mut rules = store.rules().given().iter();
    let Some(rule) = rules.find(|rule| *rule.mode() != Mode::Off && !store.supports(rule)) else {
        return Ok(());
    };
    let message = if rule.has_slots() {
        "this store does not count how many requests run at once; put the rule into a limiter or layer of its own on a \
         MemoryStore, where each process counts its own requests, or take a rate, such as Quota::gcra"
    } else if rule.has_credits() {
        "this store keeps no balances; leave credits() out, or take a MemoryStore or Redis"
    } else if rule.at_most_wait().is_none() {
        "this store cannot keep this rule; take a MemoryStore or Redis"
    } else {
        "requests cannot wait for units of this store; leave wait() out to deny them, and have callers wait in their process \
         with Limiter::acquire_within, or put the rule into a limiter or layer of its own on a MemoryStore"
    };
    Err(rule.error(RuleErrorKind::Store, message))
}
