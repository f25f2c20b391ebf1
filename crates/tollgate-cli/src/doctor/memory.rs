//! Memory, and what is forgotten when it is full.

use std::collections::BTreeMap;

use crate::{
    byte_text::bytes_text,
    doctor::{finding::Finding, server::numbers},
};

/// The share of its memory at which an alarm is due.
const ALARM: u64 = 70;

/// Memory, eviction policy, and what was evicted.
pub(crate) fn memory(info: &BTreeMap<String, String>) -> Vec<Finding> {
    let (used, most) = (numbers(info, "used_memory"), numbers(info, "maxmemory"));
    let policy = info.get("maxmemory_policy").map_or("", String::as_str);
    vec![
        bound(used, most),
        eviction(policy),
        evicted(numbers(info, "evicted_keys")),
    ]
}

fn bound(used: u64, most: u64) -> Finding {
    const CHECK: &str = "memory";
    let says = format!("{} of {} used", bytes_text(used), bytes_text(most));
    match used.saturating_mul(100).checked_div(most) {
        None => Finding::warning(
            CHECK,
            format!(
                "{} used, without a bound: a flood of keys ends with the server being killed",
                bytes_text(used)
            ),
            "set maxmemory; `tollgate size` says how much your rules need",
        ),
        Some(100..) => Finding::error(
            CHECK,
            format!("{says}: full, takes are refused, and each rule's on_store_error answers"),
            "raise maxmemory, or cap new keys (`cap_new_keys`); `tollgate size` says how much your rules need",
        ),
        Some(percent) if percent >= ALARM => Finding::warning(
            CHECK,
            format!("{says}, {percent} %"),
            "raise maxmemory before it is full; `tollgate size` says how much your rules need",
        ),
        Some(_) => Finding::fine(CHECK, says),
    }
}

fn eviction(policy: &str) -> Finding {
    const CHECK: &str = "eviction";
    let forgets = match policy {
        "noeviction" => return Finding::fine(CHECK, "noeviction"),
        "" => {
            return Finding::note(
                CHECK,
                "the server does not say its maxmemory-policy",
                "make sure that it is noeviction",
            );
        }
        "volatile-ttl" => {
            "short limits are forgotten first, those of the most active clients before others"
        }
        "allkeys-lru" | "volatile-lru" => {
            "long quotas are forgotten, of the day or the month, of clients that pause"
        }
        "allkeys-lfu" | "volatile-lfu" => "limits of clients that come seldom are forgotten",
        _ => "any limits are forgotten",
    };
    Finding::error(
        CHECK,
        format!(
            "maxmemory-policy is {policy}: when memory is full, {forgets}, and those clients begin anew"
        ),
        "CONFIG SET maxmemory-policy noeviction, and in redis.conf; keep caches on another server",
    )
}

fn evicted(keys: u64) -> Finding {
    const CHECK: &str = "evicted";
    match keys {
        0 => Finding::fine(CHECK, "no key was evicted"),
        _ => Finding::warning(
            CHECK,
            format!("{keys} keys were evicted since the server started: those limits began anew"),
            "set maxmemory-policy noeviction, and raise maxmemory",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    #[test]
    fn a_server_is_full_at_its_bound_and_near_it_from_70_percent() {
        for (used, most, level) in [
            (1, 0, Level::Warning),
            (69, 100, Level::Fine),
            (699, 1_000, Level::Fine),
            (70, 100, Level::Warning),
            (99, 100, Level::Warning),
            (100, 100, Level::Error),
            (u64::MAX, 100, Level::Error),
        ] {
            assert_eq!(bound(used, most).level, level, "{used} of {most}");
        }
    }

    #[test]
    fn every_policy_but_one_is_an_error_with_a_remedy() {
        assert_eq!(eviction("noeviction").level, Level::Fine);
        for policy in [
            "volatile-ttl",
            "allkeys-lru",
            "volatile-lfu",
            "allkeys-random",
        ] {
            let finding = eviction(policy);
            assert_eq!(finding.level, Level::Error);
            assert!(finding.remedy.contains("noeviction") && finding.says.contains(policy));
        }
        let unknown = eviction("");
        assert_eq!(unknown.level, Level::Note);
        assert!(unknown.says.contains("does not say"), "{unknown:?}");
    }

    #[test]
    fn a_policy_says_whose_limits_are_forgotten() {
        for (policy, whose) in [
            ("volatile-ttl", "short limits"),
            ("allkeys-lru", "long quotas"),
            ("volatile-lru", "long quotas"),
            ("allkeys-lfu", "clients that come seldom"),
            ("volatile-lfu", "clients that come seldom"),
            ("volatile-random", "any limits"),
        ] {
            let says = eviction(policy).says;
            assert!(says.contains(whose), "{policy}: {says}");
        }
    }

    #[test]
    fn one_key_that_was_evicted_is_a_warning() {
        assert_eq!(evicted(0).level, Level::Fine);
        let finding = evicted(1);
        assert_eq!(finding.level, Level::Warning);
        assert!(
            finding.says.starts_with("1 keys were evicted"),
            "{finding:?}"
        );
    }
}
