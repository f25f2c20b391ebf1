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
fn keys_that_come_by_turns_are_known_again_also_where_there_are_more_than_there_is_room_for() {
    let table = KeyTable::<u64>::new(1);
    // They have five tags, for four places.
    let mut are_new: Vec<_> = (1..=9_u128).map(|key| slot(key << 80 | 7)).collect();
    for _ in 0..1000 {
        are_new.retain(|slot| table.look(*slot, |_| Some(())) == Err(Miss { is_new: true }));
    }
    assert_eq!(are_new, []);
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
fn a_set_fills_a_line_and_an_entry_takes_a_key_and_eight_bytes_more_than_its_value() {
    assert_eq!(size_of::<LockedSet<u64>>(), 64);
    assert_eq!(size_of::<Entry<[u64; 8]>>(), 24 + 64);
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
