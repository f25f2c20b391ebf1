//! A quota made ready for a table, and the quotas that the states of a shard were written under.

use crate::{
    algorithm::Algorithm,
    memory::hasher::Hasher,
    quota::Quota,
    rule::{Mode, Rule},
    time::micros,
};
use std::collections::HashMap;

/// A quota made ready.
#[derive(Clone)]
pub(super) struct Plan<A> {
    pub(super) quota: A,
    /// What tells it from other quotas: a hash of its numbers, with seeds of the store. Two quotas of a table share one with a
    /// probability of one in 2^64.
    pub(super) id: u64,
    /// What denials are remembered under. A rule that blocks, or takes credits, does not learn from one that does not.
    pub(super) denial_id: u64,
    pub(super) limit: u64,
    /// How long requests wait at most, in µs; 0 where they do not.
    pub(super) at_most: u64,
    /// The most units that may be owed.
    pub(super) debt: u64,
    /// Whether it is a threshold, which reads the states of another quota.
    pub(super) is_threshold: bool,
}

impl<A: Algorithm> Plan<A> {
    /// A quota of this rule. `None` if it is of another algorithm or not valid.
    pub(super) fn of_rule(given: &Quota, rule: &Rule, hasher: &Hasher) -> Option<Self> {
        let (wait, debt) = (rule.at_most_wait(), rule.debt_of());
        let mut quota = A::new(given)?;
        if let Some(at_most) = wait {
            quota = quota.waiting(at_most);
        }
        if debt > 0 {
            quota = quota.with_debt(debt);
        }
        let at_most = wait.filter(|_| quota.waits()).map_or(0, micros);
        // Slots in use count alike under any quota.
        let id = match A::HOLDS_SLOTS {
            true => 1,
            false => hasher.quota_id(given, at_most, debt),
        };
        let (blocks, has_credits) = (rule.block_setting().is_some(), rule.has_credits());
        Some(Self {
            id,
            denial_id: id ^ u64::from(blocks) << 1 ^ u64::from(has_credits),
            limit: given.limit(),
            quota,
            at_most,
            debt,
            is_threshold: matches!(rule.mode(), Mode::Threshold { .. }),
        })
    }
}

/// The quotas that the entries of a shard were written under, by the number that an entry carries. One that no entry carries
/// any more is forgotten, and its number is free.
pub(super) struct Writers<A> {
    numbered: Vec<Writer<A>>,
    /// The quota with number 0, that of all entries in most shards: here, because each request asks for it.
    first: u64,
    free: Vec<u16>,
    /// The other numbers by quota.
    numbers: HashMap<u64, u16>,
}

struct Writer<A> {
    plan: Plan<A>,
    /// How many entries carry its number; 0 if the number is free.
    entries: u32,
}

/// The most quotas of a shard: numbers have 16 bits.
const MOST: usize = 1 << 16;

impl<A> Default for Writers<A> {
    fn default() -> Self {
        Self {
            numbered: Vec::new(),
            first: 0,
            free: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<A> Writers<A> {
    /// The quota with this number. An entry carries a number that is in use.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&Plan<A>> {
        Some(&self.numbered.get(usize::from(number))?.plan)
    }

    /// Whether the number is that of this quota.
    #[inline]
    pub(super) fn is(&self, number: u16, plan: &Plan<A>) -> bool {
        match number {
            0 => self.first == plan.id,
            _ => self.get(number).is_some_and(|writer| writer.id == plan.id),
        }
    }

    /// Quotas in use.
    pub(super) fn len(&self) -> usize {
        self.numbered.len() - self.free.len()
    }

    /// The bytes of the quotas in use beyond the first.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.len() * (size_of::<Writer<A>>() + 2 * size_of::<(u64, u16)>())
    }

    fn number(&self, id: u64) -> Option<u16> {
        match self.numbered.first() {
            Some(first) if first.entries > 0 && first.plan.id == id => Some(0),
            _ => self.numbers.get(&id).copied(),
        }
    }

    /// The number of this quota for one more entry. `None`: other quotas use all numbers.
    pub(super) fn add(&mut self, plan: &Plan<A>) -> Option<u16>
    where
        A: Clone,
    {
        if let Some(number) = self.number(plan.id) {
            self.numbered[usize::from(number)].entries += 1;
            return Some(number);
        }
        let writer = Writer {
            plan: plan.clone(),
            entries: 1,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.numbered[usize::from(number)] = writer;
                number
            }
            None if self.numbered.len() == MOST => return None,
            None => {
                // Most shards have one quota.
                if self.numbered.is_empty() {
                    self.numbered.reserve_exact(1);
                }
                self.numbered.push(writer);
                // It is below `MOST`.
                (self.numbered.len() - 1) as u16
            }
        };
        match number {
            0 => self.first = plan.id,
            _ => _ = self.numbers.insert(plan.id, number),
        }
        Some(number)
    }

    /// An entry no longer carries this number.
    pub(super) fn remove(&mut self, number: u16) {
        let Some(writer) = self.numbered.get_mut(usize::from(number)) else {
            return;
        };
        writer.entries = writer.entries.saturating_sub(1);
        if writer.entries > 0 {
            return;
        }
        self.numbers.remove(&writer.plan.id);
        self.free.push(number);
        // After many quotas have come and gone, their memory goes too.
        if self.len() == 0 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(id: u64) -> Plan<u64> {
        Plan {
            quota: id,
            id,
            denial_id: id,
            limit: id,
            at_most: 0,
            debt: 0,
            is_threshold: false,
        }
    }

    #[test]
    fn a_quota_that_changes_with_each_step_needs_two_numbers() {
        let mut writers = Writers::default();
        let mut before = None;
        for id in 0..1_000_000 {
            let number = writers.add(&plan(id)).expect("there is room");
            if let Some(before) = before.replace(number) {
                writers.remove(before);
            }
        }
        assert_eq!((writers.len(), writers.numbered.len()), (1, 2));
    }

    #[test]
    fn with_all_numbers_in_use_a_further_quota_has_none() {
        let mut writers = Writers::default();
        for id in 0..MOST as u64 {
            assert_eq!(writers.add(&plan(id)).map(u64::from), Some(id));
        }
        assert_eq!(writers.add(&plan(u64::MAX)), None);
        assert_eq!(writers.add(&plan(7)), Some(7));
        writers.remove(9);
        assert_eq!(writers.add(&plan(u64::MAX)), Some(9));
    }
}
