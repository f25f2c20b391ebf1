//! What it adds to look a client up in a list of a million entries: the median of batches of a hundred look-ups, each of another
//! client, whose key was read a moment ago, as it is from a request.

#![expect(clippy::print_stdout, reason = "it prints its table")]

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

use tollgate::{Key, key_list::KeyList};
use tollgate_redis::Secret;
use tollgate_rules::Bindings;

const ENTRIES: u64 = 1_000_000;
const BATCH: usize = 100;
const BATCHES: usize = 20_000;

/// A number that looks random.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn key(n: u64) -> String {
    format!("key-{:016x}", mixed(n))
}

/// Nanoseconds a look-up of these clients, the median.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn median<C: Hash>(clients: &[C], look_up: impl Fn(&C) -> bool) -> f64 {
    let mut batches: Vec<f64> = clients
        .chunks(BATCH)
        .map(|batch| {
            // Reads each of them.
            black_box(RandomState::new().hash_one(batch));
            let begin = Instant::now();
            for client in batch {
                black_box(look_up(client));
            }
            begin.elapsed().as_nanos() as f64 / BATCH as f64
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    batches[BATCHES / 2]
}

fn report(what: &str, goal: f64, median: f64) -> bool {
    println!("{what}: {median:.0} ns, the goal is {goal:.0}");
    median <= goal
}

fn main() {
    let secret = Secret::from_bytes(b"a secret of 32 bytes for a bench").expect("a secret");
    let plain = KeyList::new("plain");
    plain.set((0..ENTRIES).map(key)).expect("valid");
    let hashed = Bindings::hashed_list("hashed", &secret);
    let keys: Vec<_> = (0..ENTRIES).map(key).collect();
    let hashes = hashed.hashed_lines(&keys.join("\n")).expect("valid");
    hashed.set(hashes).expect("valid");
    let lookups = (BATCH * BATCHES) as u64;
    let mut holds = true;
    let of = |first, count| -> Vec<Key> {
        let client = |n| Key::of(key(first + mixed(n) % count));
        (0..lookups).map(client).collect()
    };
    for (what, keys) in [
        ("every second one in the list", of(0, 2 * ENTRIES)),
        ("none in it", of(ENTRIES, ENTRIES)),
    ] {
        for (list, goal) in [(&plain, 100.0), (&hashed, 300.0)] {
            let median = median(&keys, |key| list.has_key(key.as_ref()));
            holds &= report(&format!("{} keys, {what}", list.name()), goal, median);
        }
    }
    let address = |n: u64| Ipv4Addr::from_bits(mixed(n) as u32);
    for lengths in [&[32][..], &[24, 32], &[16, 20, 22, 23, 24, 28, 32]] {
        let networks = KeyList::new("networks");
        let network = |n: u64| {
            let length = lengths[n as usize % lengths.len()];
            let bits = address(n).to_bits() >> (32 - length) << (32 - length);
            format!("{}/{length}", Ipv4Addr::from_bits(bits))
        };
        networks.set((0..ENTRIES).map(network)).expect("valid");
        // Every second one is in the list.
        let addresses: Vec<IpAddr> = (0..lookups)
            .map(|n| address(mixed(n) % (2 * ENTRIES)).into())
            .collect();
        let what = format!("networks of {} lengths", lengths.len());
        let median = median(&addresses, |address| networks.has_address(*address));
        let goal = if lengths.len() <= 2 { 100.0 } else { 300.0 };
        holds &= report(&what, goal, median);
    }
    assert!(holds, "a goal does not hold");
}
