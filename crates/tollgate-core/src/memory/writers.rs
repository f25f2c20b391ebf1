//! The quotas that the states of a shard were written under.

use std::collections::HashMap;

use crate::memory::plan::Plan;

/// The quotas that the entries of a shard were written under, by the number that an entry carries. One that no entry carries
/// any more is forgotten, and its number is free.
#[derive(Debug)]
pub(super) struct Writers<A> {
    numbered: Vec<Writer<A>>,
    free: Vec<u16>,
    /// The numbers by quota, where there are more than a few.
    numbers: HashMap<u64, u16>,
}

#[derive(Debug)]
struct Writer<A> {
    plan: Plan<A>,
    /// How many entries carry its number; 0 if the number is free.
    entries: u32,
}

/// The most quotas that are looked at one after the other.
const FEW: usize = 8;
/// The most quotas of a shard: numbers have 16 bits.
const MOST: usize = 1 << 16;

impl<A> Default for Writers<A> {
    fn default() -> Self {
        Self {
            numbered: Vec::new(),
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
    #[inline(always)]
    pub(super) fn is(&self, number: u16, plan: &Plan<A>) -> bool {
        self.get(number).is_some_and(|writer| writer.id == plan.id)
    }

    /// Quotas in use.
    pub(super) fn len(&self) -> usize {
        self.numbered.len() - self.free.len()
    }

    /// The bytes of the quotas in use, where they are more than a few.
    pub(super) fn bytes(&self) -> usize {
        if self.numbered.len() <= FEW {
            return 0;
        }
        self.len() * (size_of::<Writer<A>>() + 2 * size_of::<(u64, u16)>())
    }

    /// The bytes of all quotas.
    pub(super) fn held_bytes(&self) -> usize {
        self.numbered.capacity() * size_of::<Writer<A>>()
            + self.numbers.capacity() * size_of::<(u64, u16)>()
    }

    fn number(&self, id: u64) -> Option<u16> {
        if self.numbered.len() > FEW {
            return self.numbers.get(&id).copied();
        }
        let is_it = |writer: &Writer<A>| writer.entries > 0 && writer.plan.id == id;
        // Numbers have 16 bits.
        Some(self.numbered.iter().position(is_it)? as u16)
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
        if self.numbered.len() == FEW + 1 && self.numbers.is_empty() {
            let in_use = self.numbered.iter().enumerate();
            let in_use = in_use.filter(|(_, writer)| writer.entries > 0);
            self.numbers = in_use
                .map(|(number, writer)| (writer.plan.id, number as u16))
                .collect();
        } else if self.numbered.len() > FEW {
            self.numbers.insert(plan.id, number);
        }
        Some(number)
    }

    /// The number of some quota in use for one more entry.
    pub(super) fn add_first(&mut self) -> Option<u16> {
        let number = self.numbered.iter().position(|writer| writer.entries > 0)?;
        self.numbered[number].entries += 1;
        // It is below `MOST`.
        Some(number as u16)
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

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn plan(id: u64) -> Plan<u64> {
        Plan {
            quota: id,
            id,
            limit: id,
            longest_reset: 0,
            at_most: 0,
            is_threshold: false,
        }
    }

    #[test]
    fn a_quota_keeps_its_number_while_an_entry_carries_it_and_no_longer() {
        let mut writers = Writers::default();
        // What entries carry: the number, and the quota that it has to be.
        let mut entries: Vec<(u16, u64)> = Vec::new();
        let mut random = 1_u64;
        for step in 0..200_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Waves: from none to thirty, and back to few.
            let wanted = if step / 500 % 2 == 0 { 60 } else { 3 };
            if entries.len() < wanted {
                let id = random >> 59;
                let number = writers.add(&plan(id)).expect("there is room");
                entries.push((number, id));
            } else {
                let (number, _) = entries.swap_remove((random >> 33) as usize % entries.len());
                writers.remove(number);
            }
            let mut counted = BTreeMap::new();
            for (number, id) in &entries {
                assert_eq!(writers.get(*number).map(|plan| plan.quota), Some(*id));
                *counted.entry(*id).or_insert(0) += 1;
            }
            assert_eq!(writers.len(), counted.len(), "at {step}");
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

    #[test]
    fn a_few_quotas_take_no_bytes_and_more_take_those_of_the_ones_in_use() {
        let each = size_of::<Writer<u64>>() + 2 * size_of::<(u64, u16)>();
        let mut writers = Writers::default();
        for id in 0..FEW as u64 {
            writers.add(&plan(id));
            assert_eq!(writers.bytes(), 0);
        }
        let number = writers.add(&plan(99)).expect("there is room");
        assert_eq!(writers.bytes(), (FEW + 1) * each);
        writers.remove(number);
        assert_eq!(writers.bytes(), FEW * each);
        let held = writers.held_bytes();
        let numbered = writers.numbered.capacity() * size_of::<Writer<u64>>();
        let numbers = writers.numbers.capacity() * size_of::<(u64, u16)>();
        assert!(numbered > 0 && numbers > 0 && held == numbered + numbers);
        for number in 0..FEW as u16 {
            writers.remove(number);
        }
        assert_eq!((writers.bytes(), writers.held_bytes()), (0, 0));
        // Most shards have one quota, with room for no other.
        writers.add(&plan(7));
        assert_eq!(writers.held_bytes(), size_of::<Writer<u64>>());
    }

    #[test]
    fn an_entry_without_a_number_of_its_own_shares_that_of_a_quota_in_use() {
        let mut writers = Writers::default();
        assert_eq!(writers.add_first(), None);
        let numbers = [1, 2].map(|id| writers.add(&plan(id)).expect("there is room"));
        writers.remove(numbers[0]);
        assert_eq!(writers.add_first(), Some(numbers[1]));
        // Two entries carry it.
        writers.remove(numbers[1]);
        assert_eq!(writers.len(), 1);
        writers.remove(numbers[1]);
        assert_eq!((writers.len(), writers.add_first()), (0, None));
    }

    #[test]
    fn a_quota_is_found_among_as_many_as_are_looked_at_one_after_the_other_and_among_more() {
        for others in [FEW - 1, FEW, FEW + 1] {
            let mut writers = Writers::default();
            let number = writers.add(&plan(7)).expect("there is room");
            let numbers: Vec<_> = (100..100 + others as u64)
                .map(|id| writers.add(&plan(id)).expect("there is room"))
                .collect();
            assert_eq!(writers.add(&plan(7)), Some(number));
            assert_eq!(writers.len(), others + 1);
            // One that has gone leaves its number, and is none of those in use.
            writers.remove(numbers[0]);
            assert_eq!(writers.add(&plan(200)), Some(numbers[0]));
            let anew = writers.add(&plan(100)).expect("there is room");
            assert!(writers.is(anew, &plan(100)) && !writers.is(anew, &plan(200)));
            assert_eq!(writers.len(), others + 2);
        }
    }
}
