//! What a server says of itself: its role, its memory, its disk, and what of the limits they cost.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    byte_text::bytes_text,
    doctor::{
        finding::{
            Finding,
            Level::{Error, Fine, Note, Warning},
        },
        server::numbers,
    },
    time_text,
};

/// The share of its memory at which an alarm is due.
const ALARM: u64 = 70;
/// Quotas of this period are worth a disk.
const LONG: Duration = Duration::from_secs(3_600);

/// `INFO` taken apart, and settings where they may be read.
#[derive(Debug)]
pub(crate) struct ServerInfo {
    pub(crate) info: BTreeMap<String, String>,
    pub(crate) min_replicas_to_write: Option<String>,
    pub(crate) save: Option<String>,
}

impl ServerInfo {
    fn text(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    /// Whether it is the master, and what a failover would cost.
    pub(crate) fn role(&self) -> Finding {
        const CHECK: &str = "role";
        if self.text("role") == "active-replica" {
            return Error.of(
                CHECK,
                "KeyDB as active replica: two masters are two limits",
                "use one master, with replicas that take no writes",
            );
        }
        if self.text("role") == "slave" {
            let master = format!("{}:{}", self.text("master_host"), self.text("master_port"));
            return Error.of(
                CHECK,
                format!(
                    "this is a replica of {master}: it refuses writes, and its states lag behind those of the master"
                ),
                format!(
                    "give the address of the master, {master}, or of the sentinels: redis-sentinel://one,two,three/name-of-the-master"
                ),
            );
        }
        let least = self.min_replicas_to_write.as_deref();
        match (numbers(&self.info, "connected_slaves"), least) {
            (0, Some(least)) if least != "0" => Error.of(
                CHECK,
                "min-replicas-to-write is set, and no replica is connected: writes are refused (NOREPLICAS)",
                "start the replicas, or set min-replicas-to-write 0",
            ),
            (replicas @ 2.., Some("0")) => Note.of(
                CHECK,
                format!(
                    "a master with {replicas} replicas: after a failover an old master that was cut off goes on accepting, up to one limit more"
                ),
                "min-replicas-to-write 1 and min-replicas-max-lag 5 bound that to seconds",
            ),
            (0, _) => Fine.of(CHECK, "a master without replicas", ""),
            (replicas, _) => Fine.of(CHECK, format!("a master, replicas: {replicas}"), ""),
        }
    }

    /// How full it is.
    pub(crate) fn memory(&self) -> Finding {
        const CHECK: &str = "memory";
        let (used, most) = (
            numbers(&self.info, "used_memory"),
            numbers(&self.info, "maxmemory"),
        );
        let says = format!("{} of {} used", bytes_text(used), bytes_text(most));
        match used.saturating_mul(100).checked_div(most) {
            None => Warning.of(
                CHECK,
                format!(
                    "{} used, without a bound: a flood of keys ends with the server being killed",
                    bytes_text(used)
                ),
                "set maxmemory; `tollgate size` says how much your rules need",
            ),
            Some(100..) => Error.of(
                CHECK,
                format!("{says}: full, takes are refused, and each rule's on_store_error answers"),
                "raise maxmemory, or cap new keys (`cap_new_keys`); `tollgate size` says how much your rules need",
            ),
            Some(percent @ ALARM..) => Warning.of(
                CHECK,
                format!("{says}, {percent} %"),
                "raise maxmemory before it is full; `tollgate size` says how much your rules need",
            ),
            Some(_) => Fine.of(CHECK, says, ""),
        }
    }

    /// What is forgotten when it is full, and what was.
    pub(crate) fn eviction(&self) -> Finding {
        const CHECK: &str = "eviction";
        let evicted = numbers(&self.info, "evicted_keys");
        match self.text("maxmemory_policy") {
            "noeviction" if evicted == 0 => Fine.of(CHECK, "noeviction, and no key was evicted", ""),
            "noeviction" => Warning.of(
                CHECK,
                format!("{evicted} keys were evicted since the server started: those limits began anew"),
                "keep maxmemory-policy at noeviction, in redis.conf too, and raise maxmemory",
            ),
            "" => Note.of(
                CHECK,
                "the server does not say its maxmemory-policy",
                "make sure that it is noeviction",
            ),
            policy => Error.of(
                CHECK,
                format!("maxmemory-policy is {policy}: when memory is full, limits are forgotten, and those clients begin anew"),
                "CONFIG SET maxmemory-policy noeviction, and in redis.conf; keep caches on another server",
            ),
        }
    }

    /// What a restart costs: `longest` is the longest window or refill of the rules, if they are known.
    pub(crate) fn persistence(&self, longest: Option<Duration>) -> Finding {
        const CHECK: &str = "persistence";
        if self.text("rdb_last_bgsave_status") == "err"
            || self.text("aof_last_write_status") == "err"
        {
            return Error.of(
                CHECK,
                "the last write to disk has failed: with stop-writes-on-bgsave-error the server refuses all takes (MISCONF)",
                "make room on the disk; if the limits last only seconds, write nothing: save \"\" and appendonly no",
            );
        }
        let says = match (self.text("aof_enabled"), self.save.as_deref()) {
            ("1", _) => return Fine.of(CHECK, "each write is appended to a file", ""),
            (_, Some("")) => "nothing is written to disk",
            (_, Some(_)) => "snapshots are written now and then",
            (_, None) => "no file is appended to; whether snapshots are written may not be read",
        };
        match longest {
            Some(longest) if longest >= LONG => Warning.of(
                CHECK,
                format!(
                    "{says}, and a quota lasts {}: after a restart every client has the whole of it again",
                    time_text::duration(longest)
                ),
                "appendonly yes with appendfsync everysec, and stop-writes-on-bgsave-error no",
            ),
            Some(_) => Fine.of(CHECK, says, ""),
            None => Note.of(
                CHECK,
                format!("{says}: after a restart all clients begin anew"),
                "give --rules to learn whether that matters; it does for quotas of an hour and more",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(pairs: &[(&str, &str)], least: Option<&str>, save: Option<&str>) -> ServerInfo {
        let pairs = pairs.iter();
        ServerInfo {
            info: pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            min_replicas_to_write: least.map(str::to_owned),
            save: save.map(str::to_owned),
        }
    }

    #[test]
    fn a_server_is_full_at_its_bound_and_near_it_from_70_percent() {
        for (used, most, level) in [
            ("1", "0", Warning),
            ("699", "1000", Fine),
            ("70", "100", Warning),
            ("99", "100", Warning),
            ("100", "100", Error),
        ] {
            let server = server(&[("used_memory", used), ("maxmemory", most)], None, None);
            assert_eq!(server.memory().level, level, "{used} of {most}");
        }
    }

    #[test]
    fn every_policy_but_one_is_an_error() {
        for (policy, evicted, level, says) in [
            ("noeviction", "0", Fine, "no key was evicted"),
            ("noeviction", "1", Warning, "1 keys were evicted"),
            ("", "0", Note, "does not say"),
            ("volatile-ttl", "0", Error, "limits are forgotten"),
        ] {
            let pairs = [("maxmemory_policy", policy), ("evicted_keys", evicted)];
            let finding = server(&pairs, None, None).eviction();
            assert_eq!(finding.level, level, "{policy}");
            assert!(finding.says.contains(says), "{finding:?}");
        }
    }

    #[test]
    fn a_failover_is_safe_where_an_old_master_stops_to_write() {
        for (replicas, least, level) in [
            ("0", None, Fine),
            ("0", Some("1"), Error),
            ("1", Some("0"), Fine),
            ("2", Some("0"), Note),
            ("2", Some("1"), Fine),
            ("2", None, Fine),
        ] {
            let pairs = [("role", "master"), ("connected_slaves", replicas)];
            let role = server(&pairs, least, None).role();
            assert_eq!(role.level, level, "{replicas} {least:?}");
        }
        let keydb = server(&[("role", "active-replica")], None, None);
        assert_eq!(keydb.role().level, Error);
    }

    #[test]
    fn what_a_disk_is_worth_depends_on_the_rules() {
        let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
        for (aof, save, longest, level) in [
            ("0", Some(""), Some(minute), Fine),
            ("0", Some(""), None, Note),
            ("0", None, Some(LONG), Warning),
            ("0", Some("3600 1"), Some(day), Warning),
            ("1", None, Some(day), Fine),
        ] {
            let finding = server(&[("aof_enabled", aof)], None, save).persistence(longest);
            assert_eq!(finding.level, level, "{finding:?}");
        }
        for failed in ["rdb_last_bgsave_status", "aof_last_write_status"] {
            let finding = server(&[(failed, "err")], None, None).persistence(None);
            assert_eq!(finding.level, Error);
        }
    }
}
