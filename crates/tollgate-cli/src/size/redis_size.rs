//! The memory of Redis, computed as its allocator gives it out. A test fills a server and compares.

use tollgate::quota::AlgorithmKind;
use tollgate_core::Rule;

/// The first part of a state: what a bucket or a window is written in.
const BUCKET: u64 = 33;
/// Behind that of a rule whose requests wait: for how long, and what lapses.
const QUEUE: u64 = 12;
const WINDOW: u64 = 37;
/// Logs and sub-buckets have a head, and as much for each instant or sub-bucket that holds units.
const HEAD: u64 = 29;
const EACH: u64 = 12;

/// As much for each process that has slots.
const OWNER: u64 = 36;

/// An entry of the table of keys, one of the table of expiries, each of 24 bytes in steps of 16.
const ENTRIES: u64 = 2 * 32;
/// A value has a header of 16 bytes; up to this length it lies behind it in one piece.
const OBJECT: u64 = 16;
const IN_ONE_PIECE: u64 = 44;

/// The bytes that one client takes in Redis 7.0 when it has taken `used` units at different times; of slots, when `used`
/// processes hold them.
pub(crate) fn bytes_per_client(namespace: &str, rule: &Rule, used: u64) -> u64 {
    // {namespace}:22 letters:rule:a1
    let key = namespace.len() as u64 + 3 + 22 + 1 + rule.name().len() as u64 + 3;
    ENTRIES + slots() + string(key) + value(value_bytes(rule, used))
}

/// Each table has 8 bytes for each place, and twice as many places as keys at most: one and a half on average, of two tables.
fn slots() -> u64 {
    2 * 8 * 3 / 2
}

fn value_bytes(rule: &Rule, used: u64) -> u64 {
    let quota = rule.quota();
    let used = used.clamp(1, quota.limit().max(1));
    match quota.algorithm() {
        AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindow => WINDOW,
        AlgorithmKind::Concurrent => HEAD + OWNER * used,
        AlgorithmKind::SlidingLog => HEAD + EACH * used,
        AlgorithmKind::SlidingBuckets => {
            HEAD + EACH * used.min(u64::from(quota.bucket_count()) + 1)
        }
        _ if rule.at_most_wait().is_some() => BUCKET + QUEUE,
        _ => BUCKET,
    }
}

fn value(bytes: u64) -> u64 {
    match bytes <= IN_ONE_PIECE {
        // Its own header has 3 bytes, and a zero ends it.
        true => in_steps(OBJECT + 4 + bytes),
        false => OBJECT + string(bytes),
    }
}

/// A string with its header and the zero at its end.
fn string(bytes: u64) -> u64 {
    let header = match bytes {
        0..32 => 1,
        32..256 => 3,
        256..65_536 => 5,
        _ => 9,
    };
    in_steps(bytes + header + 1)
}

/// As jemalloc gives it out: steps of 16 up to 128, then four steps for each doubling.
fn in_steps(bytes: u64) -> u64 {
    let step = match bytes {
        0..=128 => 16,
        _ => bytes.next_power_of_two() / 8,
    };
    bytes.div_ceil(step) * step
}

#[cfg(test)]
mod tests {
    use tollgate::{DAY, MINUTE, Quota};

    use super::*;

    #[test]
    fn the_figures_of_the_guide_come_out() {
        // As the guide on sizing has measured them, over 100 000 keys in tables of 131 072 places.
        let measured = [
            (Quota::gcra(60, MINUTE), 1, 214),
            (Quota::fixed_window(60, MINUTE), 1, 213),
            (Quota::sliding_window(60, MINUTE), 1, 213),
            (Quota::sliding_log(60, MINUTE), 1, 213),
            (Quota::sliding_log(60, MINUTE), 10, 327),
            (Quota::sliding_buckets(600, DAY), 1, 213),
            (Quota::sliding_buckets(600, DAY), 10, 328),
        ];
        for (quota, used, measured) in measured {
            let rule = Rule::new("search-per-key", quota);
            let computed = bytes_per_client("shop", &rule, used);
            let off = computed.abs_diff(measured) * 100 / measured;
            assert!(
                off <= 3,
                "{quota} with {used} used: {computed}, not {measured}"
            );
        }
    }

    #[test]
    fn each_process_with_slots_takes_its_part() {
        let rule = Rule::new("exports", Quota::concurrent(4));
        let size = |processes| bytes_per_client("shop", &rule, processes);
        // 65 bytes in a piece of their own, of 80; two of 101 in one of 112.
        assert_eq!(size(2) - size(1), 32);
        assert_eq!(size(4), size(1_000), "no more than there are slots");
    }

    #[test]
    fn a_bucket_whose_requests_wait_is_longer() {
        let size = |rule: Rule| bytes_per_client("shop", &rule, 1);
        let rule = || Rule::new("provider", Quota::gcra(60, MINUTE));
        // 33 bytes in one piece of 64 with all that belongs to them; 45 in a piece of their own of 64.
        assert_eq!(size(rule().wait(MINUTE)) - size(rule()), 16);
    }

    #[test]
    fn a_name_that_fills_its_step_takes_the_next_one() {
        let size = |letters| {
            let rule = Rule::new("r".repeat(letters), Quota::gcra(60, MINUTE));
            bytes_per_client("shop", &rule, 1)
        };
        // Entries and places of tables, a name of 60 bytes in 64, and a value in 64.
        assert_eq!(size(27), 64 + 24 + 64 + 64);
        assert_eq!(size(28), size(27) + 16);
    }

    #[test]
    fn a_longer_string_has_a_longer_header() {
        for (bytes, given) in [
            (14, 16),
            (15, 32),
            (44, 48),
            (45, 64),
            (314, 320),
            (315, 384),
            (81_910, 81_920),
            (81_911, 98_304),
        ] {
            assert_eq!(string(bytes), given, "{bytes}");
        }
    }

    #[test]
    fn memory_is_given_out_in_steps() {
        for (bytes, given) in [
            (1, 16),
            (16, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (161, 192),
            (257, 320),
            (1_025, 1_280),
        ] {
            assert_eq!(in_steps(bytes), given, "{bytes}");
        }
    }
}
