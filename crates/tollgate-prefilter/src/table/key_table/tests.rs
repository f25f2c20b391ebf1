//! Tests of the table of keys.

use tollgate_core::store::Fingerprint;

use super::*;

fn slot(key: u128) -> TableKey {
    TableKey::new(0, Fingerprint::from_bits(key))
}

#[test]
fn of_a_key_that_is_seen_once_nothing_is_kept() {
    let table = KeyTable::<u64>::new(1);
    let look = |key| table.look(slot(key), |value| Some(*value));
    assert_eq!(look(7), Err(Miss { is_new: true }));
    assert_eq!(look(7), Err(Miss { is_new: false }));
    assert_eq!(look(8), Err(Miss { is_new: true }));
    assert_eq!(table.usage(|_| panic!("nothing is kept")).keys, 0);
    let kept = table.with_new(slot(7), 2, |_| true, |value| *value);
    assert_eq!((kept, look(7)), (Some(0), Ok(0)));
    let nothing = table.look(slot(7), |_| None::<()>);
    assert_eq!(nothing, Err(Miss { is_new: false }));
}

#[test]
fn a_full_set_forgets_what_has_been_idle_for_longest_and_nothing_that_is_in_use() {
    let table = KeyTable::<u64>::new(1);
    for key in 0..WAYS as u128 {
        table.with_new(slot(key), (key as u64) << AGE, |_| true, |value| *value = 1);
    }
    let in_use = |value: &u64| *value == 0;
    assert_eq!(
        table.with_new(slot(99), 100 << AGE, in_use, |value| *value),
        None
    );
    table.with(slot(5), |value| *value = 0);
    table.with(slot(3), |value| *value = 0);
    assert_eq!(
        table.with_new(slot(99), 100 << AGE, in_use, |value| *value),
        Some(0)
    );
    // The older of the two idle ones has gone.
    assert_eq!(table.with(slot(3), |value| *value), None);
    assert_eq!(table.with(slot(5), |value| *value), Some(0));
    let mut sum = 0;
    let usage = table.usage(|value| sum += value);
    assert_eq!((usage.keys, sum), (WAYS as u64, WAYS as u64 - 2));
}

#[test]
fn keys_that_look_alike_are_distinguished() {
    let table = KeyTable::<u128>::new(1);
    // One byte is looked at first, and it is the same; the next is the one above it.
    let keys = [7 << 56 | 1, 6 << 56, 7 << 56 | 2, 0, 7 << 56];
    for key in keys {
        table.with_new(slot(key), 1, |_| true, |value| *value = key);
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
    table.with_new(slot, now, |_| true, |value| *value)
}

#[test]
fn a_key_has_an_entry_for_each_limit_and_for_each_of_its_halves() {
    let table = KeyTable::<u64>::new(1);
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
        let table = KeyTable::<u64>::new(1);
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
