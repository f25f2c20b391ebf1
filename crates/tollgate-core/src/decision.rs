//! Decisions: what a limiter answers.

use std::{slice, time::Duration};

use crate::{
    algorithm::{Assessment, Retry, Taken},
    check::Check,
    held_slots::{HeldSlots, SharedSlots},
    hold::{Hold, Source},
    time::{Tick, micros},
};

/// What became of a check, or of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The units fit; if the whole request was allowed, they were taken.
    Allow,
    /// The units did not fit.
    Deny,
    /// The store failed to decide.
    Failed,
    /// Not consulted: another rule had already denied the request.
    NotDecided,
}

/// Why a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A quota is used up for now.
    Quota,
    /// The cost is above what ever fits.
    Never,
    /// The store failed, or a look-up of the key, and a rule says to deny then.
    StoreFailed,
    /// There is no key, and a rule says to reject then.
    NoKey,
    /// Too many requests run at once: no slot is free.
    Slots,
    /// Waiting would help, but the queue is full.
    QueueFull,
    /// A limit of [none](crate::Quota::none), or a block: no request passes, or none for now.
    Blocked,
    /// What the request waited for was gone when it could have started, and its time to wait was over.
    WaitExpired,
}

impl Reason {
    /// The word for it in logs: `quota`, `never`, `store_failed`, `no_key`, `slots`, `queue_full`, `blocked` or
    /// `wait_expired`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Never => "never",
            Self::StoreFailed => "store_failed",
            Self::NoKey => "no_key",
            Self::Slots => "slots",
            Self::QueueFull => "queue_full",
            Self::Blocked => "blocked",
            Self::WaitExpired => "wait_expired",
        }
    }
}

/// The answer to one check.
///
/// The rule's name, limit and window are in the [`RuleSet`](crate::RuleSet), under [`rule`](Self::rule).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    remaining: u64,
    /// For slots, their number: time does not bring them back.
    reset_after: u64,
    retry: CompactRetry,
    rule: u16,
    plan: u16,
    outcome: Outcome,
    source: Source,
    /// What else there is to know: [`DEGRADED`], [`REMAINING_UNKNOWN`] and so on.
    flags: u8,
    /// The how manieth block of its key is in force; 0 if none is.
    block_level: u8,
}

const DEGRADED: u8 = 1;
const REMAINING_UNKNOWN: u8 = 2;
const SLOTS: u8 = 4;
const BLOCKED: u8 = 8;
/// `remaining` has the units that are owed.
const IN_DEBT: u8 = 16;
const REPEAT: u8 = 32;
const FORGOTTEN: u8 = 128;

impl Verdict {
    /// A verdict as an algorithm gave it.
    #[inline]
    #[must_use]
    pub fn new(rule: u16, plan: u16, answer: Assessment, source: Source) -> Self {
        let outcome = match answer.fits {
            true => Outcome::Allow,
            false => Outcome::Deny,
        };
        Self {
            remaining: answer.remaining,
            reset_after: answer.reset_after,
            retry: CompactRetry::of(answer.retry),
            source,
            ..Self::unanswered(rule, plan, outcome)
        }
    }

    /// A verdict without numbers: the check failed, or was not consulted.
    #[must_use]
    pub const fn unanswered(rule: u16, plan: u16, outcome: Outcome) -> Self {
        Self {
            remaining: 0,
            reset_after: 0,
            retry: CompactRetry::UNKNOWN,
            rule,
            plan,
            outcome,
            source: Source::None,
            flags: 0,
            block_level: 0,
        }
    }

    /// The denial of a check that is [blocked](Self::is_blocked). `retry` is [`Never`](Retry::Never) without an end.
    #[must_use]
    pub fn blocked(rule: u16, plan: u16, retry: Retry, source: Source) -> Self {
        Self {
            retry: CompactRetry::of(retry),
            source,
            flags: BLOCKED,
            ..Self::unanswered(rule, plan, Outcome::Deny)
        }
    }

    #[inline]
    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The rule's index in the rule set.
    #[must_use]
    pub fn rule(&self) -> usize {
        usize::from(self.rule)
    }

    /// The plan's number in the rule: 0 is the rule's own quota.
    #[must_use]
    pub fn plan(&self) -> usize {
        usize::from(self.plan)
    }

    /// What became of the check.
    #[inline]
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Who answered.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Units left: after the take if it was allowed, as they are if it was denied.
    ///
    /// # Accuracy
    ///
    /// Exact at the time of the decision where the source is the store. An estimate where it is
    /// [not known](Self::knows_remaining).
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        match self.has(IN_DEBT) {
            true => 0,
            false => self.remaining,
        }
    }

    /// The units that have to come back before any fit: those that were charged beyond what there was, under a rule with
    /// [debt](crate::Rule::debt). Only a [peek](crate::Limiter::peek) with a cost of 0 knows them.
    #[must_use]
    pub fn debt(&self) -> u64 {
        match self.has(IN_DEBT) {
            true => self.remaining,
            false => 0,
        }
    }

    /// The same verdict of a key that owes so many units: nothing remains.
    #[must_use]
    pub fn with_debt(mut self, units: u64) -> Self {
        self.flags |= IN_DEBT;
        self.remaining = units;
        self
    }

    /// Whether the request repeats one with the same id, and passes this rule at no cost: see
    /// [`Rule::idempotent`](crate::Rule::idempotent).
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.has(REPEAT)
    }

    /// The same verdict on a [repeat](Self::is_repeat).
    #[must_use]
    pub fn as_repeat(mut self) -> Self {
        self.flags |= REPEAT;
        self.retry = CompactRetry::NOW;
        self
    }

    /// Whether [`remaining`](Self::remaining) is known. It is not where the check [has no numbers](Self::has_numbers), such as in a
    /// peek while the store fails; and where a process denies by what an earlier denial of a shared store has taught it, and others
    /// may have taken units since: then it is good for a next attempt, and nothing to tell a client.
    #[inline]
    #[must_use]
    pub fn knows_remaining(&self) -> bool {
        !self.has(REMAINING_UNKNOWN) && self.has_numbers()
    }

    /// The same verdict of a process that does not [know](Self::knows_remaining) what is left.
    #[must_use]
    pub fn with_remaining_unknown(mut self) -> Self {
        self.flags |= REMAINING_UNKNOWN;
        self
    }

    /// The same verdict about slots, which have no reset time; with their [number](Self::slot_number), if they were taken.
    #[inline]
    #[must_use]
    pub fn of_slots(mut self, number: Option<u64>) -> Self {
        self.flags |= SLOTS;
        self.reset_after = number.unwrap_or(0);
        self
    }

    /// Whether it is about slots: of a rule that limits how many run [at once](crate::Quota::concurrent).
    #[inline]
    #[must_use]
    pub fn is_of_slots(&self) -> bool {
        self.has(SLOTS)
    }

    /// Whether it is a denial by a limit of [none](crate::Quota::none) or by a block. It has no numbers.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.has(BLOCKED)
    }

    /// The same verdict of a store that has lost its states since the present window of a [durable](crate::Rule::durable) rule began, and
    /// has nothing of the key: it has failed to decide, and took nothing. The limiter asks a ledger what was used, and the store
    /// [anew](crate::store::RuleStore::acquire_within).
    #[must_use]
    pub fn forgotten(mut self) -> Self {
        self.outcome = Outcome::Failed;
        self.flags |= FORGOTTEN;
        self
    }

    /// Whether the store has [forgotten](Self::forgotten) what was used.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.outcome == Outcome::Failed && self.has(FORGOTTEN)
    }

    /// The same verdict of a key that is blocked, at this level.
    #[must_use]
    pub fn with_block_level(mut self, level: u8) -> Self {
        self.flags |= BLOCKED;
        self.block_level = level;
        self
    }

    /// The how manieth block of its key is in force, as far as blocks [grow](crate::Block::for_each): from 1 on. `None`: no
    /// [block](crate::Rule::block) is, and a denial that [is blocked](Self::is_blocked) is by a limit of none. A cost of 0 is told
    /// as well, and not denied: [`retry`](Self::retry) says when the block ends.
    #[must_use]
    pub fn block_level(&self) -> Option<u8> {
        (self.block_level > 0).then_some(self.block_level)
    }

    /// The number of slots that were taken: above that of all slots which the rule and key were given before. `None` if none
    /// were taken.
    #[must_use]
    pub fn slot_number(&self) -> Option<u64> {
        (self.is_of_slots() && self.reset_after > 0).then_some(self.reset_after)
    }

    /// The time until the state equals a fresh one, if nothing more is taken. Zero for [slots](Self::is_of_slots), which come
    /// back when requests end.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after_ticks())
    }

    /// The same in µs.
    #[inline]
    #[must_use]
    pub fn reset_after_ticks(&self) -> u64 {
        if self.is_of_slots() {
            return 0;
        }
        self.reset_after
    }

    /// The same verdict, with this many µs until the state is fresh: for a store that derives the verdicts of several
    /// instants from one.
    #[must_use]
    pub const fn with_reset_after(mut self, micros: u64) -> Self {
        self.reset_after = micros;
        self
    }

    /// After a denial, when the same cost fits; after an allowed request, when it fits again. [`Retry::Now`] if enough
    /// units are left. For a cost of 0, when one unit fits.
    ///
    /// # Accuracy
    ///
    /// Exact to the microsecond if the source is the store and no other client uses the key. Other sources err on the late
    /// side, as long as the client uses one process. If its requests reach several, a
    /// [`Leased`](crate::Consistency::Leased) or [`Eventual`](crate::Consistency::Eventual) rule may be too early, by what the
    /// others hold or have not reported.
    #[inline]
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.retry.get()
    }

    /// Whether the request passes only because the store failed and the rule says to pass then.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.has(DEGRADED)
    }

    /// Whether the numbers are known: the check was answered by counting.
    #[inline]
    #[must_use]
    pub fn has_numbers(&self) -> bool {
        !self.is_degraded()
            && match self.outcome {
                Outcome::Allow => true,
                Outcome::Deny if self.is_blocked() => false,
                Outcome::Deny => self.retry != CompactRetry::UNKNOWN || self.is_of_slots(),
                Outcome::Failed | Outcome::NotDecided => false,
            }
    }

    /// The same verdict, answered by `source`.
    #[must_use]
    pub fn from_source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// What an allowed check has taken by this verdict, at the time of its decision: nothing if it was a
    /// [repeat](Self::is_repeat).
    #[must_use]
    pub fn hold(&self, check: Check, at: Tick) -> Hold {
        // Where a block is over, another plan has counted than the check says.
        let mut check = check.with_plan(self.plan);
        if self.is_repeat() {
            check = check.with_cost(0);
        }
        let fresh_at = at.saturating_add(self.reset_after_ticks());
        let mut hold = Hold::of_store(check, Taken::new(at, fresh_at));
        hold.source = self.source;
        hold
    }

    pub(crate) fn not_decided(&self) -> Self {
        Self::unanswered(self.rule, self.plan, Outcome::NotDecided)
    }

    /// Lets a failed check pass as degraded.
    pub(crate) fn pass_degraded(&mut self) {
        self.outcome = Outcome::Allow;
        self.source = Source::Fallback;
        self.flags |= DEGRADED;
    }

    /// A failed check that is denied.
    pub(crate) fn deny_for_failure(&mut self) {
        self.outcome = Outcome::Deny;
        self.source = Source::Fallback;
        self.retry = CompactRetry::UNKNOWN;
    }
}

/// A [`Retry`] in one word, because decisions are moved around: microseconds, and the largest numbers for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CompactRetry(u64);

impl CompactRetry {
    const NOW: Self = Self(u64::MAX);
    const UNKNOWN: Self = Self(u64::MAX - 1);
    const NEVER: Self = Self(u64::MAX - 2);

    #[inline]
    fn of(retry: Retry) -> Self {
        match retry {
            Retry::Now => Self::NOW,
            Retry::After(delay) => Self(micros(delay).min(Self::NEVER.0 - 1)),
            Retry::Unknown => Self::UNKNOWN,
            Retry::Never => Self::NEVER,
        }
    }

    #[inline]
    fn get(self) -> Retry {
        match self {
            Self::NOW => Retry::Now,
            Self::UNKNOWN => Retry::Unknown,
            Self::NEVER => Retry::Never,
            Self(micros) => Retry::after_micros(micros),
        }
    }
}

/// The answer to a request: a verdict for each check, and what follows from them.
#[must_use = "a request that is denied must not go on"]
#[derive(Clone, Debug)]
pub struct Decision {
    verdicts: Verdicts,
    at: Tick,
    outcome: Outcome,
    reason: Option<Reason>,
    retry: CompactRetry,
    /// What most decisions do not have.
    rest: Option<Box<Rest>>,
    slots: SharedSlots,
}

/// Verdicts in the order of the checks. Those of one or two lie where the decision is: to allocate and free some takes as long as to
/// decide a check.
#[derive(Clone, Copy, Debug)]
enum Verdicts {
    One(Verdict),
    Two([Verdict; 2]),
    /// None, or those of the [`Rest`].
    Rest,
}

/// The verdicts where they are many, and what a request waits for, or has waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rest {
    verdicts: Vec<Verdict>,
    /// How long it has to wait before it starts, in µs.
    delay: u64,
    /// How long it has waited, in µs.
    waited: u64,
    places: Vec<Hold>,
}

/// Who holds the slots is nothing that a decision says.
impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        let says = |it: &Self| (it.at, it.outcome, it.reason, it.retry);
        let waits = |it: &Self| (it.delay(), it.waited());
        (says(self), waits(self)) == (says(other), waits(other))
            && self.queue_places() == other.queue_places()
            && self.verdicts() == other.verdicts()
    }
}

impl Eq for Decision {}

impl Decision {
    /// A decision with no verdict: nothing limits the request.
    pub fn unlimited(at: Tick) -> Self {
        Self {
            verdicts: Verdicts::Rest,
            at,
            outcome: Outcome::Allow,
            reason: None,
            retry: CompactRetry::NOW,
            rest: None,
            slots: SharedSlots::default(),
        }
    }

    /// The denial of a request without a key, by a rule that rejects those: [`NoKey`](Reason::NoKey), or
    /// [`StoreFailed`](Reason::StoreFailed) where its look-up failed. The store was not called.
    pub fn without_key(why: Reason) -> Self {
        Self {
            outcome: Outcome::Deny,
            reason: Some(why),
            retry: CompactRetry::UNKNOWN,
            ..Self::unlimited(0)
        }
    }

    /// Puts a decision together. `enforced` says of a verdict whether it counts: shadow rules and thresholds do not.
    ///
    /// An enforced denial decides; then an enforced failure; then the request is allowed.
    #[inline]
    pub fn new(
        at: Tick,
        verdicts: impl IntoIterator<Item = Verdict>,
        enforced: impl Fn(&Verdict) -> bool,
    ) -> Self {
        let mut decision = Self::unlimited(at);
        decision.set_verdicts(verdicts);
        decision.conclude(enforced);
        decision
    }

    fn set_verdicts(&mut self, verdicts: impl IntoIterator<Item = Verdict>) {
        let mut more = verdicts.into_iter();
        self.verdicts = match [more.next(), more.next(), more.next()] {
            [Some(one), None, _] => Verdicts::One(one),
            [Some(one), Some(other), None] => Verdicts::Two([one, other]),
            first => {
                let all = first.into_iter().flatten().chain(more);
                self.rest.get_or_insert_default().verdicts = all.collect();
                Verdicts::Rest
            }
        };
    }

    /// Concludes from the verdicts.
    pub(crate) fn conclude(&mut self, enforced: impl Fn(&Verdict) -> bool) {
        let (mut retry, mut is_denied, mut is_failed) = (Retry::Now, false, false);
        let (mut is_blocked, mut is_counted, mut is_of_slots) = (false, false, true);
        for verdict in self.verdicts().iter().filter(|it| enforced(it)) {
            match verdict.outcome {
                Outcome::Allow | Outcome::NotDecided => {}
                Outcome::Failed => is_failed = true,
                Outcome::Deny => {
                    is_denied = true;
                    retry = retry.or_later(verdict.retry());
                    is_blocked |= verdict.is_blocked();
                    is_counted |= verdict.has_numbers();
                    is_of_slots &= verdict.is_of_slots();
                }
            }
        }
        (self.outcome, self.reason) = match (is_denied, is_failed) {
            (false, false) => (Outcome::Allow, None),
            (false, true) => (Outcome::Failed, Some(Reason::StoreFailed)),
            // A block wins over a rule that denied by counting, and that over one that denied because the store failed.
            (true, _) => (
                Outcome::Deny,
                Some(match retry {
                    _ if is_blocked => Reason::Blocked,
                    _ if !is_counted => Reason::StoreFailed,
                    Retry::Never => Reason::Never,
                    _ if is_of_slots => Reason::Slots,
                    _ => Reason::Quota,
                }),
            ),
        };
        if self.outcome == Outcome::Failed {
            retry = Retry::Unknown;
        }
        self.retry = CompactRetry::of(retry);
    }

    /// The decision about a request whose one check fits.
    pub(crate) fn allowed(at: Tick, verdict: Verdict) -> Self {
        Self {
            verdicts: Verdicts::One(verdict),
            ..Self::unlimited(at)
        }
    }

    /// The decision about a request whose few checks all fit.
    #[inline]
    pub(crate) fn all_allowed(at: Tick, verdicts: &[Verdict]) -> Self {
        match verdicts {
            [one, other] => Self {
                verdicts: Verdicts::Two([*one, *other]),
                ..Self::unlimited(at)
            },
            _ => Self::new(at, verdicts.iter().copied(), |_| true),
        }
    }

    /// The decision about one check, as [`new`](Self::new) puts it together: it costs less.
    #[inline]
    pub fn of_one(at: Tick, verdict: Verdict, enforced: bool) -> Self {
        if verdict.outcome == Outcome::Allow || !enforced {
            return Self::allowed(at, verdict);
        }
        if !verdict.has_numbers() {
            return Self::new(at, [verdict], |_| true);
        }
        Self {
            outcome: Outcome::Deny,
            reason: Some(match verdict.retry {
                CompactRetry::NEVER => Reason::Never,
                _ if verdict.is_of_slots() => Reason::Slots,
                _ => Reason::Quota,
            }),
            retry: verdict.retry,
            ..Self::allowed(at, verdict)
        }
    }

    /// Allowed, denied, or (only between a store and its limiter) failed.
    #[inline]
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may proceed: now, or after its [delay](Self::delay) if it has one.
    #[inline]
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allow
    }

    /// Why it was denied.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// When *all* rules would pass: the latest of the denying enforced rules.
    ///
    /// # Accuracy
    ///
    /// Exact to the microsecond if no other client uses the keys. Otherwise another client may take the units first;
    /// the request still never passes earlier.
    #[inline]
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.retry.get()
    }

    /// The time to wait until all rules pass; `None` if all pass already, if one never will, or if the time is unknown.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry().delay().filter(|delay| !delay.is_zero())
    }

    /// The same denial of a request that other rules, which have let it pass before, let pass again only at `retry`.
    pub fn retry_no_sooner(mut self, retry: Retry) -> Self {
        self.retry = CompactRetry::of(self.retry().or_later(retry));
        self
    }

    /// The time of the decision: by the store's clock, or by this process's where the store failed. 0 if the checks were a mistake,
    /// made by another limiter.
    #[must_use]
    pub fn at(&self) -> Tick {
        self.at
    }

    /// The verdicts, in the order of the checks.
    #[inline]
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        match &self.verdicts {
            Verdicts::One(verdict) => slice::from_ref(verdict),
            Verdicts::Two(verdicts) => verdicts,
            Verdicts::Rest => self.rest.as_ref().map_or(&[], |rest| &rest.verdicts),
        }
    }

    /// Inserts verdicts of checks that were not decided with the others, at the indices of these checks.
    pub(crate) fn insert(&mut self, verdicts: &[(usize, Verdict)]) {
        let mut all = self.verdicts().to_vec();
        for (index, verdict) in verdicts {
            all.insert(*index, *verdict);
        }
        self.set_verdicts(all);
    }

    /// Says when this process decided, where no store did.
    pub(crate) fn set_time_if_none(&mut self, now: impl FnOnce() -> Tick) {
        if self.at == 0 {
            self.at = now();
        }
    }

    pub(crate) fn verdicts_mut(&mut self) -> &mut [Verdict] {
        match &mut self.verdicts {
            Verdicts::One(verdict) => slice::from_mut(verdict),
            Verdicts::Two(verdicts) => verdicts,
            Verdicts::Rest => self
                .rest
                .as_mut()
                .map_or(&mut [], |rest| &mut rest.verdicts),
        }
    }

    /// How long the admitted request has to wait before it starts; zero for all others.
    ///
    /// The place in the queue is taken. The time counts from the receipt of the decision, not from the call.
    #[inline]
    #[must_use]
    pub fn delay(&self) -> Duration {
        let rest = self.rest.as_deref();
        rest.map_or(Duration::ZERO, |rest| Duration::from_micros(rest.delay))
    }

    /// How long the request has waited before it [started](crate::Limiter::start); zero for all others.
    #[must_use]
    pub fn waited(&self) -> Duration {
        let rest = self.rest.as_deref();
        rest.map_or(Duration::ZERO, |rest| Duration::from_micros(rest.waited))
    }

    /// The same decision of a request that has to wait for `delay`, with its places in the queues: for stores.
    pub fn delayed(mut self, delay: Duration, places: impl IntoIterator<Item = Hold>) -> Self {
        let rest = self.rest.get_or_insert_default();
        rest.delay = micros(delay);
        rest.waited = 0;
        rest.places = places.into_iter().collect();
        self
    }

    /// The same decision after the wait, with what was decided at its end about the checks at these indices.
    pub(crate) fn started(
        mut self,
        then: Self,
        indices: &[usize],
        enforced: impl Fn(&Verdict) -> bool,
    ) -> Self {
        for (index, verdict) in indices.iter().zip(then.verdicts()) {
            if let Some(before) = self.verdicts_mut().get_mut(*index) {
                *before = *verdict;
            }
        }
        self.at = then.at;
        self.conclude(enforced);
        let is_allowed = self.is_allowed();
        if let Some(rest) = &mut self.rest {
            (rest.delay, rest.waited) = (0, rest.delay);
            if !is_allowed {
                rest.places.clear();
            }
        }
        self.slots = then.slots;
        self
    }

    /// The places that a [delayed](Self::delayed) request has in the queues, and that a started one has had: for stores.
    #[must_use]
    pub fn queue_places(&self) -> &[Hold] {
        self.rest.as_deref().map_or(&[], |rest| &rest.places)
    }

    /// The same decision as a denial for this reason.
    pub fn denied_for(mut self, reason: Reason) -> Self {
        self.outcome = Outcome::Deny;
        self.reason = Some(reason);
        if let Some(rest) = &mut self.rest {
            (rest.delay, rest.waited) = (0, 0);
            rest.places.clear();
        }
        self.slots = SharedSlots::default();
        self
    }

    /// What the request holds from now on, in place of what it has held: for stores.
    pub fn set_slots(&mut self, slots: Option<HeldSlots>) {
        self.slots = SharedSlots::new(slots);
    }

    /// Takes the slots out that the request holds, if it does and they were not taken out before: from this decision, a clone of
    /// it, or by a [ticket](crate::Limiter::ticket). Otherwise they go back with the last clone of the decision.
    #[inline]
    #[must_use = "slots go back when they are dropped"]
    pub fn take_slots(&self) -> Option<HeldSlots> {
        self.slots.take()
    }

    /// Whether a rule passes only because the store failed.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.verdicts().iter().any(Verdict::is_degraded)
    }

    /// Whether the request [repeats](Verdict::is_repeat) another one for any of its rules.
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.verdicts().iter().any(Verdict::is_repeat)
    }
}

#[cfg(test)]
mod tests;
