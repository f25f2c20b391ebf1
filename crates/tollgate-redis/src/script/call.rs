//! Calls of the script. A call is filled with one request, or with all that wait; each is decided on its own.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    Check, Source, Tick,
    store::{Fingerprint, Hold, Settlement},
};
use tollgate_prefilter::{LeaseQuery, LeaseTerms, ReturnedLease, SlotMessage};

use crate::script::{
    args::{CheckKeys, LAST, MORE, Operation, ScriptCall},
    encoder::{Encoder, RuleArgs, THRESHOLD, double},
};

/// The most keys of a check: its own and the overflow bucket, each by two secrets, and that of a durable rule.
const MOST_KEYS: usize = 5;

/// What the answer to a settlement says that somebody reads, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettledCheck {
    pub(crate) check: Check,
    pub(crate) place: u16,
    pub(crate) tells: SettledReply,
}

/// What an answer to a settlement says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SettledReply {
    /// What has [lapsed](crate::script::reply::ScriptReply::lapsed_units), of a refund where requests wait, or of a charge of a rule with
    /// debt: of that, these units lapse without an answer.
    Lapsed { at_risk: u64 },
    /// What a balance has [paid](crate::script::reply::ScriptReply::paid_units), of the charge of a durable rule; or in its place, what
    /// stays taken for a repeat of a request that was to get all back.
    Paid { hold: Hold, is_charge: bool },
    /// The [block](crate::script::reply::ScriptReply::block) of a settled request that counts.
    Block,
}

impl ScriptCall {
    /// Whether nothing was added: then there is nothing to call.
    pub(crate) fn is_empty(&self) -> bool {
        self.checks() == 0
    }

    /// Where the answer to the next check will be.
    fn place(&self) -> u16 {
        // Below 65 535, as there was room.
        self.checks() as u16
    }

    /// Begins a request, whose states may be found by a client of another rule.
    fn begin_request(&mut self, with: Option<Fingerprint>) {
        (self.with, self.first_key) = (with, self.command.keys.len());
    }

    /// Adds a request that takes its units if all fit.
    #[cfg(test)]
    pub(crate) fn acquire(&mut self, rules: &Encoder, checks: &[Check]) -> Option<RequestLayout> {
        self.acquire_within(rules, checks, Tick::MAX, |_| true)
    }

    /// The same for rules without slots, within some patience, and with caps on new keys.
    #[cfg(test)]
    pub(crate) fn acquire_within(
        &mut self,
        rules: &Encoder,
        checks: &[Check],
        patience: Tick,
        may_make: impl FnMut(u16) -> bool,
    ) -> Option<RequestLayout> {
        let (take, patience) = (Operation::Take, rules.patience(checks, patience));
        self.request(rules, checks, take, patience, may_make, |_, _, _| None)
    }

    /// Adds a message about slots that no request carries. `reserved`: the owner is a reservation, perhaps with a term of its own.
    /// Gives the index of its answer; `None` as for [`close`](Self::close).
    #[must_use = "the answer says whether it was read"]
    pub(crate) fn tell_slots(
        &mut self,
        rules: &Encoder,
        check: &Check,
        with: Option<Fingerprint>,
        message: &SlotMessage,
        reserved: Option<Option<Duration>>,
    ) -> Option<u16> {
        if !self.has_room(1) {
            return None;
        }
        // A quota that was brought along may be forgotten by now. What runs counts under any.
        let of_check = rules.args_of(check);
        let (rule_args, mut plan) = of_check.or_else(|| rules.any_args(check.rule()))?;
        if let Some(term) = reserved.flatten() {
            let micros = term.as_micros().min(u128::from(LAST)) as u64;
            plan[1..9].copy_from_slice(&double(micros));
        }
        let (what, place) = (Operation::Take, self.place());
        // It stands alone, and its key may be there already.
        (self.with, self.first_key) = (with, 0);
        let check = check.with_cost(u64::from(message.want));
        let keys = self.find(rules, rule_args, &check, None);
        let mut writer = self.begin(rules, what, rule_args, &plan, &check, keys);
        writer.add_slots(message, reserved.is_some(), false);
        writer.end(false);
        Some(place)
    }

    /// Adds a request that takes nothing.
    #[cfg(test)]
    pub(crate) fn peek(&mut self, rules: &Encoder, checks: &[Check]) -> Option<RequestLayout> {
        let (what, patience) = (Operation::Query, rules.patience(checks, Tick::MAX));
        self.request(rules, checks, what, patience, |_| true, |_, _, _| None)
    }

    /// Adds the settlement of units that were taken. False where it does not fit any more.
    #[cfg(test)]
    pub(crate) fn settle(&mut self, rules: &Encoder, hold: &Hold, how: Settlement) -> bool {
        self.settle_all(rules, std::slice::from_ref(hold), how)
            .is_some()
    }

    /// Adds the settlement of all units of a ticket. With a partition by a rule, their states are found by the client of
    /// that rule, which has to be among them.
    ///
    /// `None` where it does not fit any more; then nothing was added.
    pub(crate) fn settle_all(
        &mut self,
        rules: &Encoder,
        holds: &[Hold],
        how: Settlement,
    ) -> Option<SmallVec<[SettledCheck; 1]>> {
        if !self.has_room(rules.most_places(holds.len())) {
            return None;
        }
        let mut settled = SmallVec::new();
        self.begin_request(rules.with(holds.iter().map(|hold| hold.check)));
        let is_of_slots = |rule| rules.rule(rule).is_some_and(RuleArgs::is_of_slots);
        let of_units = |hold: &&Hold| !is_of_slots(hold.check.rule());
        // Slots go back when their request ends.
        for hold in holds.iter().filter(of_units) {
            let (check, taken) = (&hold.check, &hold.taken);
            let (what, units) = match how {
                Settlement::Refund(units) => (Operation::Refund, units.min(check.cost())),
                Settlement::Cancel => (Operation::Refund, check.cost()),
                Settlement::Charge(units) if check.cost() > 0 => (Operation::Charge, units),
                _ => continue,
            };
            let counts = hold.counts && check.cost() > 0;
            let place = self.place();
            let mut tell = |tells| {
                settled.push(SettledCheck {
                    check: *check,
                    place,
                    tells,
                });
            };
            let Some((rule_args, plan)) = rules.args_of(check).filter(|_| units > 0 || counts)
            else {
                continue;
            };
            let is_charge = matches!(what, Operation::Charge);
            if rule_args.wait.is_some() && !is_charge || rule_args.debt() > 0 && is_charge {
                let at_risk = if is_charge { units } else { 0 };
                tell(SettledReply::Lapsed { at_risk });
            }
            // What a ledger corrects is of the quota alone.
            let is_payable = is_charge && rule_args.has_credits && taken.fresh_at > 0;
            let is_whole = !is_charge && units == check.cost();
            let id = rules.id_of(rule_args, check).filter(|_| is_whole);
            if rule_args.durable && is_payable || id.is_some() {
                let hold = *hold;
                tell(SettledReply::Paid { hold, is_charge });
            }
            if counts {
                tell(SettledReply::Block);
            }
            let (check, overflow) = (check.with_cost(units), rule_args.overflow);
            let keys = self.find(rules, rule_args, &check, overflow);
            let mut writer = self.begin(rules, what, rule_args, &plan, &check, keys);
            if hold.source == Source::Credits && !is_charge || is_payable {
                writer.find_balance();
            }
            // Later than any state of a quota: LAST and the time from empty to full.
            let fresh_at = taken.fresh_at.min(LAST << 1);
            writer.add(&[double(taken.at.min(LAST)), double(fresh_at)]);
            if let Some((id, terms)) = id {
                writer.add_id(id, terms);
            }
            if rule_args.wait.is_none() && is_charge {
                writer.add(&[double(rule_args.debt())]);
                if rule_args.durable {
                    writer.add_durable(None, false);
                }
            }
            if let Some(wait) = rule_args.wait {
                // A part of the units leaves the rest taken.
                let before = hold.before.filter(|_| units == hold.check.cost());
                let (tat, rest) = before.map_or((-1.0, 0), |state| (state.tat as f64, state.rest));
                writer.add(&[
                    double(wait),
                    tat.to_le_bytes(),
                    f64::from(rest).to_le_bytes(),
                ]);
            }
            if counts {
                writer.add_block(1);
            }
            writer.end(false);
        }
        Some(settled)
    }

    /// Adds a reset of a state. False if the call is full.
    ///
    /// With a partition by a rule, a state of another rule is [in another hash slot](Self::reset_all) if both were checked.
    #[cfg(test)]
    pub(crate) fn reset(&mut self, rules: &Encoder, rule: u16, key: Fingerprint) -> bool {
        self.reset_all(rules, &[Check::new(rule, key, 1)])
    }

    /// Adds a reset of the states of these checks of one request. A check with a cost of 0 keeps its state: it only
    /// determines the hash slot of the others, if the partition is by its rule.
    /// [`ScriptReply::was_kept`](crate::script::reply::ScriptReply::was_kept) says whether there was a state.
    ///
    /// False if they do not fit into the call. Then nothing was added.
    pub(crate) fn reset_all(&mut self, rules: &Encoder, checks: &[Check]) -> bool {
        if !self.has_room_to_reset(checks.len(), 0) {
            return false;
        }
        self.begin_request(rules.with(checks.iter().copied()));
        for check in checks.iter().filter(|check| check.cost() > 0) {
            let Some((rule_args, quota)) = rules.any_args(check.rule()) else {
                continue;
            };
            if rule_args.is_of_slots() {
                // Slots belong to requests that run.
                continue;
            }
            let (what, check) = (Operation::Reset, check.with_cost(0));
            let CheckKeys { key, other, .. } = self.find(rules, rule_args, &check, None);
            for key in [key, other].into_iter().filter(|key| *key > 0) {
                let keys = CheckKeys::of(key);
                let writer = self.begin(rules, what, rule_args, &quota, &check, keys);
                writer.end(false);
            }
        }
        true
    }

    /// Whether a reset of that many checks fits, behind that many others.
    pub(crate) fn has_room_to_reset(&self, checks: usize, others: usize) -> bool {
        self.has_room(2 * checks + others)
    }

    /// Adds the return of a lease of the check's state. Gives the index of its answer; `None` if the call is full, or there is
    /// no such state.
    #[must_use = "what was taken out of a holder is lost if it is not sent"]
    pub(crate) fn close(
        &mut self,
        rules: &Encoder,
        check: &Check,
        returned: ReturnedLease,
    ) -> Option<u16> {
        let tail = [double(returned.left), double(returned.generation)];
        let check = check.with_cost(returned.size);
        self.single(rules, &check, Operation::ReturnLease, &tail)
    }

    /// Adds a query for a lease, granted if the previous request of this call is granted. If that is denied and has no other
    /// checks, a scheduled lease may be granted. `None` as for [`close`](Self::close).
    #[must_use = "the lease is in its answer"]
    pub(crate) fn grant(
        &mut self,
        rules: &Encoder,
        check: &Check,
        query: &LeaseQuery,
        terms: &LeaseTerms,
    ) -> Option<u16> {
        let [scheduled, horizon, below] = match terms.schedule {
            Some(schedule) => [query.scheduled, schedule.horizon, schedule.below],
            None => [0; 3],
        };
        let tail = [terms.reserve, scheduled, horizon, below].map(double);
        let check = check.with_cost(query.tracked);
        self.single(rules, &check, Operation::GrantLease, &tail)
    }

    /// Adds a report of admitted units, which count even if they do not fit. `None` as for [`close`](Self::close).
    #[must_use = "what is left is in its answer"]
    pub(crate) fn debit(&mut self, rules: &Encoder, check: &Check) -> Option<u16> {
        self.single(rules, check, Operation::Debit, &[])
    }

    fn single(
        &mut self,
        rules: &Encoder,
        check: &Check,
        what: Operation,
        tail: &[[u8; 8]],
    ) -> Option<u16> {
        if !self.has_room(1) {
            return None;
        }
        let (rule_args, plan) = rules.args_of(check)?;
        let place = self.place();
        (self.with, self.first_key) = (None, 0);
        let keys = self.find(rules, rule_args, check, None);
        let mut writer = self.begin(rules, what, rule_args, &plan, check, keys);
        writer.add(tail);
        writer.end(false);
        Some(place)
    }

    fn has_room(&self, checks: usize) -> bool {
        let most = usize::from(u16::MAX);
        self.checks() + 2 * checks < most && self.command.keys.len() + MOST_KEYS * checks < most
    }

    /// Adds a request. If it takes, it does if all its units fit, or will within `patience` µs, which is no longer than its rules let it wait;
    /// and that creates new keys only if `may_make` allows it.
    ///
    /// `may_make` is called with the rule's index, once for each state of a rule that has a cap on new keys
    /// ([`Encoder::with_caps`]). If it returns false and there is no state yet, the check is decided against the overflow
    /// bucket that all such clients share. [`ScriptReply::new_keys`](crate::script::reply::ScriptReply::new_keys) has the outcome.
    ///
    /// `message` is called for each state of slots, with the check that takes them, who says where the state lies, and the place of the
    /// answer. Without a message no slots are taken.
    ///
    /// `None` if the call is full (about 65 000 checks). Then nothing was added.
    #[must_use = "without it there is no telling which answers are those of the request"]
    pub(crate) fn request(
        &mut self,
        rules: &Encoder,
        checks: &[Check],
        what: Operation,
        patience: Tick,
        mut may_make: impl FnMut(u16) -> bool,
        mut message: impl FnMut(&Check, Option<Fingerprint>, u16) -> Option<SlotMessage>,
    ) -> Option<RequestLayout> {
        if !self.has_room(rules.most_places(checks.len())) {
            return None;
        }
        let with = rules.with(checks.iter().copied());
        self.begin_request(with);
        let patience = double(patience.min(LAST));
        let mut layout: SmallVec<[Option<SentCheck>; 4]> = SmallVec::with_capacity(checks.len());
        let bases = std::mem::take(&mut self.bases);
        let takes = matches!(what, Operation::Take);
        // The check before.
        let mut before = None;
        for (index, check) in checks.iter().enumerate() {
            let Some((rule_args, plan)) = rules.args_of(check) else {
                layout.push(None);
                continue;
            };
            // Checks on one state are one check. A threshold has a limit of its own, and a rule of its own.
            let same = |other: &Check| other.rule() == check.rule() && other.key() == check.key();
            let mut earlier = checks[..index].iter().zip(&layout);
            let first = earlier.find_map(|(other, sent)| sent.filter(|_| same(other)));
            if let Some(first) = first {
                let is_first = false;
                layout.push(Some(SentCheck { is_first, ..first }));
                continue;
            }
            let all = checks[index..]
                .iter()
                .filter(|other| same(other))
                .filter(|other| rules.args_of(other).is_some());
            let units = all.clone().map(Check::cost).fold(0, u64::saturating_add);
            // Those that are folded have no id in common.
            let id = (all.count() == 1).then(|| rules.id_of(rule_args, check));
            if let Some(before) = before {
                self.command.args.bytes[before + 2] |= MORE;
            }
            // A cost of 0 creates no key.
            let cap = rule_args.overflow.filter(|_| takes && units > 0);
            let sent = SentCheck {
                rule: check.rule(),
                place: self.place(),
                units,
                is_first: true,
                may_make: cap.map(|_| may_make(check.rule())),
                has_block: rule_args.block.is_some(),
            };
            layout.push(Some(sent));
            let overflow = cap.filter(|_| sent.may_make == Some(false));
            let check = check.with_cost(units);
            let keys = self.find(rules, rule_args, &check, overflow);
            let mut writer = self.begin(rules, what, rule_args, &plan, &check, keys);
            if rule_args.has_credits && units > 0 {
                writer.find_balance();
            }
            if let Some((id, terms)) = id.flatten() {
                writer.add_id(id, terms);
            }
            if rule_args.durable && takes {
                let base = bases.iter().find(|(of, _)| same(of));
                writer.add_durable(Some(base.map(|it| it.1)), rule_args.debt() > 0);
            }
            if let Some(wait) = rule_args.wait {
                writer.add(&[patience, double(0), double(wait)]);
            }
            // Those of a threshold are only read.
            if rule_args.is_of_slots() && rule_args.role != THRESHOLD && units > 0 {
                let with = with.filter(|_| !rules.is_with(check.rule()));
                if let Some(message) = message(&check, with, sent.place) {
                    writer.add_slots(&message, false, rule_args.may_wait());
                }
            }
            writer.add_block(0);
            before = Some(writer.end(cap.is_some()));
        }
        Some(RequestLayout(layout))
    }
}

// Shows how much there is: a key ties log lines to a person.
tollgate_core::debug_fields!(ScriptCall, it => keys: it.command.keys.len(), checks: it.checks());

// Where the answers to a request are.

/// Where the answers to a request are in the reply: for each check, unless it was not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestLayout(SmallVec<[Option<SentCheck>; 4]>);

/// A check that was sent. Checks on one state are sent as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentCheck {
    pub(crate) rule: u16,
    /// The answer. What is said of a block follows it.
    pub(crate) place: u16,
    /// The units of all checks on this state.
    pub(crate) units: u64,
    /// Whether it is the first of them.
    pub(crate) is_first: bool,
    /// Of a rule with a cap on new keys: whether it was allowed to make one.
    pub(crate) may_make: Option<bool>,
    /// Whether its rule blocks keys.
    pub(crate) has_block: bool,
}

impl RequestLayout {
    /// What was sent of each check.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Option<&SentCheck>> {
        self.0.iter().map(Option::as_ref)
    }

    /// What was sent, with the index of the first check on each state.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (usize, &SentCheck)> {
        let all = self.iter().enumerate();
        all.filter_map(|(index, sent)| Some((index, sent.filter(|it| it.is_first)?)))
    }
}
