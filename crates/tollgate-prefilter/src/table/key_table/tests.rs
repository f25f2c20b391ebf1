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

#[test]
fn the_keys_that_are_seen_at_one_place_are_distinguished() {
    let table = KeyTable::<u64>::new(1);
    let is_new = |slot| table.look(slot, |_| Some(())) == Err(Miss { is_new: true });
    let at_one_place = |high: u128| slot(high << 80 | 7);
    let four = [0xff02, 0xff04, 0xff06, 0xff08].map(at_one_place);
    assert_eq!(four.map(is_new), [true; 4]);
    assert_eq!(four.map(is_new), [false; 4]);
    // The next takes the place of one of them, and nothing is left of that.
    let next = at_one_place(2);
    assert!(is_new(next) && !is_new(next));
    // A client is new under each limit.
    let other = |limit| TableKey::new(limit, Fingerprint::from_bits(2 << 80 | 9));
    assert!(is_new(other(0)) && is_new(other(1)) && !is_new(other(0)));
}

#[test]
fn the_keys_of_a_client_under_many_limits_are_spread() {
    let table = KeyTable::<u64>::new(2 * WAYS);
    for limit in 0..2 * WAYS as u32 {
        let slot = TableKey::new(limit, Fingerprint::from_bits(7));
        let kept = table.with_new(slot, 1, |_| false, |value| *value);
        assert_eq!(kept, Some(0), "{limit}");
    }
}

#[test]
fn the_bytes_of_a_table_are_those_of_its_parts_with_room_for_a_few_entries_at_a_time() {
    let bytes = |table: &KeyTable<u64>| table.usage(|_| ()).bytes as usize;
    let filter = BloomFilter::new().bytes();
    assert_eq!(filter, 8 << 10);
    let large = KeyTable::<u64>::new(4_096);
    assert_eq!(bytes(&large), 4_096 / WAYS * 64 + 4_096 / 4 * 8 + filter);
    let table = KeyTable::<u64>::new(1);
    let empty = 64 + WAYS * 8 + filter;
    assert_eq!(bytes(&table), empty);
    for (key, room) in (0..=2 * ROOM as u128).zip([1, 1, 1, 1, 2, 2, 2, 2, 3]) {
        keep(&table, slot(key), 1);
        assert_eq!(bytes(&table), empty + room * ROOM * size_of::<Entry<u64>>());
    }
}
