//! Tickets: units that were taken and may still be settled.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    algorithm::Taken,
    block::Block,
    check::Check,
    decision::{Decision, Outcome},
    error::RuleError,
    held_slots::HeldSlots,
    hold::{Hold, Holds, Settlement, Source},
    journal::DurableRules,
    rule::Rule,
    rule_set::RuleSet,
    store::rule_store::RuleStore,
};

/// The units that an allowed request took: settle to the real cost, refund, or keep. And the slots that it holds.
///
/// Slots go back when the ticket is settled or dropped, exactly once. A second ticket of the same decision has none.
///
/// A ticket knows when its units were taken, but not what happened to the state since: one that outlives a
/// [reset](crate::Limiter::reset) of its key may refund units that were taken after the reset.
///
/// Dropping a ticket settles nothing unless [`cancel_on_drop`](Self::cancel_on_drop) was called: its units stay taken. A request
/// whose units stay counts towards the [block](crate::Block::count_settled) of its rule then.
///
/// # Accuracy
///
/// A ticket gives back only units that its state certainly still counts, so that holding and cancelling tickets gains
/// nothing: the units taken and not given back stay within the quota, in every window of time.
///
/// - Windows, sub-buckets and logs know the units: all come back, until they expire.
/// - A bucket does not know which of its units have refilled. The ticket's count first: of `c` units that were held for a time
///   `t`, at most `c − rate · t` come back. Units that you refund at once come back in full.
/// - A bucket whose requests [wait](Rule::wait) gives back only the units that were taken last: those who have come since know when
///   they start. All others lapse.
/// - A bucket whose plans refill at several rates knows the rate of the ticket's plan alone. A client that takes plans in turn
///   while a ticket is held may get units back that have refilled at a faster rate: at most those that the ticket took.
///
/// If another quota has [replaced](crate::Limiter::replacing) the ticket's, units are
/// [converted](crate::algorithm::Algorithm::refund_converted).
///
/// If requests reserve much, hold it for long, and give most of it back, use a window, or reserve close to the real cost.
///
/// ```
/// use tollgate_core::{Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule};
///
/// // It stands still: 10 000 a minute are one more each 6 ms.
/// let clock = ManualClock::new(1_700_000_000_000_000);
/// let store = MemoryStore::builder().clock(&clock).build();
/// let limiter = Limiter::new(store, [Rule::new("tokens-per-account", Quota::gcra(10_000, MINUTE))])?;
/// let check = limiter.check("tokens-per-account", &Key::of("account-7"))?.with_cost(4_000);
/// let decision = limiter.acquire(&[check]).ready().expect("memory answers at once");
/// let ticket = limiter.ticket(&[check], &decision);
/// ticket.settle(1_500); // it took 1 500 of the 4 000: 2 500 go back
/// let left = limiter.peek(&[check]).ready().expect("memory answers at once");
/// assert_eq!(left.verdicts()[0].remaining(), 8_500 - 4_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "Charge")]
#[must_use = "a ticket that is dropped returns its slots and settles no units; call `cancel_on_drop` if it should"]
#[derive(Debug)]
pub struct Ticket {
    pub(crate) store: Arc<dyn RuleStore>,
    pub(crate) holds: Holds,
    /// The cost to which each check is settled when it is dropped; `None`: units stay as they are.
    cost: Option<u64>,
    pub(crate) slots: Vec<Hold>,
    /// What gives them back.
    _held: Option<HeldSlots>,
    /// Hears of settlements.
    pub(crate) durable: Option<Arc<DurableRules>>,
    /// Whether operators were told of the decision, and daily usage has its units.
    is_reported: bool,
}

impl Ticket {
    /// Of the rules that `takes` says have taken something; `durable` rules hear of what is settled.
    pub(crate) fn new(
        store: Arc<dyn RuleStore>,
        checks: &[Check],
        decision: &Decision,
        takes: fn(&RuleSet, usize) -> bool,
        durable: Option<&Arc<DurableRules>>,
    ) -> Self {
        // A denied request took nothing, also where some of its rules would have allowed it.
        let mut holds = if decision.is_allowed() {
            holds(&*store, checks, decision, takes)
        } else {
            Holds::new()
        };
        for hold in &mut holds {
            count_first(store.rules(), hold);
            let rule = store.rules().rule_of(&hold.check);
            let block = rule.and_then(Rule::block_setting);
            hold.counts = hold.check.cost() > 0
                && hold.source != Source::Fallback
                && block.is_some_and(Block::counts_settled);
        }
        let held = decision.take_slots();
        let slots = match &held {
            Some(_) => slot_holds(checks, decision).collect(),
            None => Vec::new(),
        };
        Self {
            store,
            holds,
            cost: None,
            slots,
            _held: held,
            durable: durable.cloned(),
            is_reported: true,
        }
    }

    /// The same of a decision that operators are not told of yet.
    pub(crate) fn unreported(mut self) -> Self {
        self.is_reported = false;
        self
    }

    /// Whether the store has forgotten slots that it holds: its process stood still, or could not reach the store, for longer than the
    /// store keeps slots of a process, or the store has lost its states. Others may have been given them since, so more may run than
    /// the limit; and the slots stay forgotten until the ticket is dropped.
    ///
    /// A process notices with the next reply of the store, and sends its next message as soon as it runs again. What must never
    /// happen twice needs the [number](Self::slot_number) too, which the protected resource compares. Always false where slots are in
    /// memory.
    #[must_use]
    pub fn is_outlived(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|slot| slot.source != Source::Fallback && self.store.is_outlived(slot))
    }

    /// The number of its slots of the rule with this name: a fencing token. It is greater than the number of every earlier slot of
    /// the same rule and key, so a protected resource can refuse a request with a smaller number than one that it has seen.
    ///
    /// `None` if the ticket holds no slots of the rule.
    ///
    /// # Accuracy
    ///
    /// Where a store has forgotten the rule and key, the number goes on from its clock. So it may be smaller than before if that
    /// clock is behind: on a server that takes over without the state, after a step back by more than the store keeps the slots of a
    /// process that it does not hear from, and in memory when the process starts anew.
    #[must_use]
    pub fn slot_number(&self, rule: &str) -> Option<u64> {
        let index = self.store.rules().position(rule)?;
        let slot = (self.slots.iter()).find(|slot| usize::from(slot.check.rule()) == index)?;
        Some(slot.number)
    }

    /// The part of the ticket that belongs to one rule, if several rules admitted the request in units of their own, such as
    /// requests and bytes. The rest of the ticket is dropped: its units stay taken, and the request counts towards the
    /// [blocks](crate::Block::count_settled) of the other rules. Slots stay with the ticket, whatever their rule.
    ///
    /// # Errors
    ///
    /// There is no rule of this name.
    pub fn of_rule(mut self, rule: &str) -> Result<Self, RuleError> {
        let rules = self.store.rules();
        let index = rules.position(rule).ok_or_else(|| {
            RuleError::unknown("rule", rule, rules.given().iter().map(Rule::name))
        })?;
        let is_other = |hold: &Hold| usize::from(hold.check.rule()) != index;
        self.settle_as(|hold| settlement_to(hold, None).filter(|_| is_other(hold)));
        for hold in self.holds.iter_mut().filter(|hold| is_other(hold)) {
            *hold = place_of(hold);
        }
        Ok(self)
    }

    /// Settles what each check took to what it really `cost`: gives back the difference, or charges it, as far as there are units; of a
    /// rule with [debt](Rule::debt) in full, up to that.
    ///
    /// Where rules count in units of their own, settle [one of them](Self::of_rule). It also frees the slots that the ticket holds,
    /// whatever the cost: one call ends both.
    pub fn settle(mut self, cost: u64) {
        self.cost = Some(cost);
    }

    /// Settles each check to a cost of its own, as [`settle`](Self::settle) does; `None` leaves what it took.
    pub fn settle_each(self, mut cost: impl FnMut(&Check) -> Option<u64>) {
        self.settle_as(|hold| settlement_to(hold, cost(&hold.check)));
        self.forget();
    }

    /// Gives everything back.
    pub fn cancel(self) {
        self.settle(0);
    }

    /// Gives everything back when the ticket is dropped without being settled: for work that costs nothing if it is cut
    /// off. [`keep`](Self::keep) calls that off.
    ///
    /// A client can cut a request off. Where the work is paid for by then, settle instead, and leave what was taken.
    pub fn cancel_on_drop(mut self) -> Self {
        self.cost = Some(0);
        self
    }

    /// Lets what was taken be.
    pub fn keep(mut self) {
        self.cost = None;
    }

    /// Settles nothing, and counts nothing towards a [block](Rule::block): another ticket of the decision does.
    pub fn forget(mut self) {
        self.cost = None;
        self.holds.clear();
        self.durable = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle_as(|hold| settlement_to(hold, self.cost));
    }
}

impl Ticket {
    /// A `None` leaves what a check took.
    fn settle_as(&self, how_of: impl FnMut(&Hold) -> Option<Settlement>) {
        let hows: SmallVec<[Option<Settlement>; 4]> = self.holds.iter().map(how_of).collect();
        if let Some(durable) = &self.durable {
            for (hold, how) in self.holds.iter().zip(&hows) {
                if let Some(how) = *how {
                    durable.settled(hold, how, self.is_reported);
                }
            }
        }
        for (mut holds, how) in settlements(&self.holds, &self.slots, &hows) {
            for hold in &mut holds {
                // Of units that the store never had, only a charge that may be owed goes to it.
                let rule = self.store.rules().rule_of(&hold.check);
                let may_owe = matches!(how, Settlement::Charge(_))
                    && rule.is_some_and(|rule| rule.debt_of() > 0);
                if hold.source == Source::Fallback && !may_owe {
                    *hold = place_of(hold);
                }
            }
            if holds.iter().any(|hold| hold.check.cost() > 0) {
                self.store.settle(&holds, how);
            }
        }
    }
}

/// One settlement for all holds of a request that are settled alike, which is the rule. The others, and its slots, only say where a store
/// finds the states of units.
pub(crate) fn settlements(
    holds: &[Hold],
    slots: &[Hold],
    hows: &[Option<Settlement>],
) -> impl Iterator<Item = (Holds, Settlement)> {
    hows.iter().enumerate().filter_map(move |(index, one)| {
        let how = (*one).filter(|_| !hows[..index].contains(one))?;
        let settled = holds
            .iter()
            .zip(hows)
            .map(|(hold, other)| match other == one {
                // What gets everything back does not count towards a block.
                true => Hold {
                    counts: hold.counts && how != Settlement::Cancel,
                    ..*hold
                },
                false => place_of(hold),
            });
        Some((settled.chain(slots.iter().map(place_of)).collect(), how))
    })
}

/// How a hold is settled to what its check really cost; `None`: it stays as it is.
pub(crate) fn settlement_to(hold: &Hold, cost: Option<u64>) -> Option<Settlement> {
    let reserved = hold.check.cost();
    match cost.filter(|_| reserved > 0) {
        Some(0) => Some(Settlement::Cancel),
        Some(cost) if cost < reserved => Some(Settlement::Refund(reserved - cost)),
        Some(cost) if cost > reserved => Some(Settlement::Charge(cost - reserved)),
        _ => hold.counts.then_some(Settlement::Refund(0)),
    }
}

/// A hold that is not settled, and stays in the list because a store may find the states of the others by it.
pub(crate) fn place_of(hold: &Hold) -> Hold {
    Hold {
        check: hold.check.with_cost(0),
        counts: false,
        ..*hold
    }
}

/// Counts every refill of a bucket against these units first. While a ticket is held, earlier units may be given back and the
/// bucket may fill up; the arrival time from when its units were taken says nothing about that.
fn count_first(rules: &RuleSet, hold: &mut Hold) {
    let check = &hold.check;
    let rule = rules.rule_of(check);
    let quota = rule.map(|rule| rule.quota_under(usize::from(check.plan())));
    if rule.is_some_and(|rule| rule.at_most_wait().is_some()) {
        // A refund gives these back only as the last ones that were taken.
        return;
    }
    if let Some(time) = quota.and_then(|quota| quota.refill_micros(check.cost())) {
        let taken = &mut hold.taken;
        taken.fresh_at = taken.fresh_at.min(taken.at.saturating_add(time));
    }
}

/// The slots that a request was given.
pub(crate) fn slot_holds<'a>(
    checks: &'a [Check],
    decision: &'a Decision,
) -> impl Iterator<Item = Hold> + 'a {
    let checked = checks.iter().zip(decision.verdicts());
    checked.filter_map(|(check, verdict)| {
        let number = verdict.slot_number().filter(|_| check.cost() > 0)?;
        let check = verdict.hold(*check, decision.at()).check;
        Some(Hold::of_slots(check, number, verdict.source()))
    })
}

/// What an allowed request has taken of the store by its enforced rules, and slots by which it may find the states of units.
pub(crate) fn holds_and_places(
    store: &dyn RuleStore,
    checks: &[Check],
    decision: &Decision,
) -> Holds {
    let mut holds = holds(store, checks, decision, RuleSet::enforces);
    if !holds.is_empty() {
        holds.extend(slot_holds(checks, decision).map(|slots| place_of(&slots)));
    }
    holds
}

/// What an allowed request has taken of the store, of the rules at the indices for which `takes` is true; and of the local share where
/// more may be charged or a ledger is told.
pub(crate) fn holds(
    store: &dyn RuleStore,
    checks: &[Check],
    decision: &Decision,
    takes: fn(&RuleSet, usize) -> bool,
) -> Holds {
    let rules = store.rules();
    let (places, is_delayed) = (decision.queue_places(), !decision.delay().is_zero());
    let rule_waits = |rule: &Rule| rule.at_most_wait().is_some();
    let waits = |check: &Check| rules.rule_of(check).is_some_and(rule_waits);
    let is_settled =
        |rule: &Rule| rule.debt_of() > 0 || rule.is_durable() || rule.has_daily_usage();
    let is_enforced = |place: &&Hold| rules.enforces(usize::from(place.check.rule()));
    let queued = places.iter().filter(is_enforced).copied();
    // Of a request that has yet to wait, only its places are taken. Once it has started, they are those of the rules that wait.
    let is_taken = |check: &Check| places.is_empty() || !(is_delayed || waits(check));
    let taken = checks
        .iter()
        .zip(decision.verdicts())
        .filter(|(check, verdict)| {
            check.cost() > 0
                && !verdict.is_of_slots()
                && verdict.outcome() == Outcome::Allow
                && match verdict.source() {
                    Source::Store | Source::Lease | Source::Local | Source::Credits => true,
                    Source::Fallback => rules.rule_of(check).is_some_and(is_settled),
                    _ => false,
                }
                && takes(rules, verdict.rule())
                && is_taken(check)
        })
        .map(|(check, verdict)| verdict.hold(*check, decision.at()));
    let mut holds: Holds = queued.chain(taken).collect();
    if !holds.is_empty() {
        // What cost nothing may say where a store finds the states of the others.
        let free = checks.iter().filter(|check| check.cost() == 0);
        holds.extend(free.map(|check| Hold::of_store(*check, Taken::new(0, 0))));
    }
    holds
}
