//! Tests of the table of keys.

use super::*;

fn slot(key: u128) -> TableKey {
    TableKey::new(0, Fingerprint::from_bits(key))
}

#[test]
fn a_full_set_forgets_what_is_cheapest_and_has_been_idle_for_longest_and_nothing_that_has_to_stay()
{
    let table = KeyTable::<u64>::new(1, true);
    for key in 0..WAYS as u128 {
        table.with_new(
            slot(key),
            (key as u64) << AGE,
            |_| Some(0),
            |value| *value = 1,
        );
    }
    let in_use = |value: &u64| (*value != 1).then_some(*value);
    assert_eq!(
        table.with_new(slot(99), 100 << AGE, in_use, |value| *value),
        None
    );
    // Of two that are as dear the older goes first, and before both the cheaper one.
    for (key, price) in [(7, 2), (5, 2), (9, 0)] {
        table.with(slot(key), |value| *value = price);
    }
    for (new, gone) in [(99, 9), (98, 5), (97, 7)] {
        let kept = table.with_new(slot(new), 100 << AGE, in_use, |value| {
            std::mem::replace(value, 1)
        });
        assert_eq!(kept, Some(0));
        assert_eq!(table.with(slot(gone), |value| *value), None);
    }
    let (mut keys, mut sum) = (0, 0);
    table.see_all(|value| (keys, sum) = (keys + 1, sum + value));
    assert_eq!((keys, sum), (WAYS, WAYS as u64));
}

#[test]
fn keys_that_look_alike_are_distinguished() {
    let table = KeyTable::<u128>::new(1, true);
    // One byte is looked at first, and it is the same; the next is the one above it.
    let keys = [7 << 56 | 1, 6 << 56, 7 << 56 | 2, 0, 7 << 56];
    for key in keys {
        table.with_new(slot(key), 1, |_| Some(0), |value| *value = key);
    }
    for key in keys {
        assert_eq!(table.with(slot(key), |value| *value), Some(key));
    }
    assert_eq!(table.with(slot(7 << 56 | 3), |value| *value), None);
    assert_eq!(table.with(slot(9 << 56), |value| *value), None);
    assert_eq!(
        table.with(TableKey::new(1, slot(0).key()), |value| *value),
        None
    );
}

/// What keeps one value of each key.
fn keep(table: &KeyTable<u64>, slot: TableKey, now: Tick) -> Option<u64> {
    table.with_new(slot, now, |_| Some(0), |value| *value)
}

#[test]
fn a_key_has_an_entry_for_each_rule_and_for_each_of_its_halves() {
    let table = KeyTable::<u64>::new(1, true);
    let slots = [(0, 7), (1, 7), (0, 7 | 1 << 100), (0, 8)];
    let slots = slots.map(|(limit, key)| TableKey::new(limit, Fingerprint::from_bits(key)));
    for (slot, value) in slots.into_iter().zip(1..) {
        assert_eq!(keep(&table, slot, 1), Some(0));
        table.with(slot, |it| *it = value);
    }
    let kept = slots.map(|slot| table.with(slot, |value| *value));
    assert_eq!(kept, [Some(1), Some(2), Some(3), Some(4)]);
}

#[test]
fn an_entry_that_is_used_again_is_not_the_oldest_also_after_the_ages_have_begun_anew() {
    for begin in [1 << 40, (1 << 48) - (16 << AGE)] {
        let table = KeyTable::<u64>::new(1, true);
        let at = |age: u64| begin + (age << AGE);
        for key in 0..WAYS as u64 {
            keep(&table, slot(key.into()), at(key));
        }
        keep(&table, slot(0), at(40));
        assert_eq!(keep(&table, slot(99), at(50)), Some(0));
        let is_kept = |key| table.with(slot(key), |_| ()).is_some();
        let gone: Vec<_> = (0..WAYS as u128).filter(|key| !is_kept(*key)).collect();
        assert_eq!(gone, [1], "from {begin} on");
    }
}

#[test]
fn a_denial_is_of_one_limit_and_all_of_a_key_are_forgotten_at_once() {
    let table = KeyTable::<u64>::new(1, true);
    let words = [1, 2, 3];
    let (key, other) = (7 << 64, 8 << 64 | 1 << 24);
    for limit in [4, 5] {
        table.learn(slot(key), limit, words, false);
    }
    table.learn(slot(other), 4, words, false);
    let knows = |key, limit| table.denial(slot(key), limit);
    assert_eq!([knows(key, 4), knows(key, 5)], [Some(words); 2]);
    assert_eq!((knows(key, 6), knows(other, 5)), (None, None));
    // The only one that counts.
    table.learn(slot(key), 6, words, true);
    assert_eq!([knows(key, 4), knows(key, 5)], [None; 2]);
    table.unlearn(slot(key));
    assert_eq!((knows(key, 6), knows(other, 4)), (None, Some(words)));
    // What has no place in the words teaches nothing.
    table.learn(slot(key), 4, [1, 1 << 52, 3], false);
    assert_eq!(knows(key, 4), None);
    let silent = KeyTable::<u64>::new(1, false);
    silent.learn(slot(key), 4, words, false);
    assert_eq!(silent.denial(slot(key), 4), None);
}
