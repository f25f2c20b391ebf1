//! What a server says of itself: its role, its memory, its disk, and what of the limits they cost.

use std::time::Duration;

use indicatif::HumanBytes;

use crate::{doctor::finding::Findings, report};

/// The share of its memory at which an alarm is due.
const ALARM: u64 = 70;
/// Quotas of this period are worth a disk.
const LONG: Duration = Duration::from_secs(3_600);
const MORE: &str = "raise maxmemory before it is full, or cap new keys (`cap_new_keys`); the guide on Redis says how much your rules need";

/// `INFO`, and settings where they may be read.
#[derive(Debug)]
pub(crate) struct ServerInfo {
    pub(crate) text: String,
    pub(crate) min_replicas_to_write: Option<String>,
    pub(crate) save: Option<String>,
}

impl ServerInfo {
    /// `longest` is the longest window or refill of the rules, if they are known.
    pub(crate) fn judge(&self, is_cluster: bool, longest: Option<Duration>, found: &mut Findings) {
        self.role(found);
        self.memory(found);
        self.eviction(found);
        self.persistence(longest, found);
        if !is_cluster && self.field("redis_mode") == "cluster" {
            found.error(
                "cluster",
                "this is one server of a cluster: keys on the other servers cannot be decided\n\
                give the address of the cluster, redis-cluster://one,two,three",
            );
        }
    }

    fn field(&self, name: &str) -> &str {
        let mut lines = self.text.lines().map(str::trim_end);
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or("")
    }

    fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or(0)
    }

    /// Whether it is the master, and what a failover would cost.
    fn role(&self, found: &mut Findings) {
        if self.field("role") == "slave" {
            let [host, port] = ["master_host", "master_port"].map(|name| self.field(name));
            return found.error("role", format!(
                "this is a replica of {host}:{port}: it refuses writes, and its states lag behind those of the master\n\
                 give the address of the master, or of the sentinels: redis-sentinel://one,two,three/name-of-the-master"
            ));
        }
        let least = self.min_replicas_to_write.as_deref();
        // One that is being copied to holds nothing, and counts for no min-replicas-to-write.
        match (self.text.matches("state=online").count(), least) {
            (0, Some(least)) if least != "0" => found.error("role", "min-replicas-to-write is set, and no replica is in sync: writes are refused (NOREPLICAS)\n\
                start the replicas, or set min-replicas-to-write 0"),
            (replicas @ 2.., Some("0")) => found.note("role", format!(
                "a master with {replicas} replicas: after a failover an old master that was cut off goes on accepting, up to one limit more\n\
                 min-replicas-to-write 1 and min-replicas-max-lag 5 bound that to seconds"
            )),
            (0, _) => found.fine("role", "a master without replicas in sync"),
            (replicas, _) => found.fine("role", format!("a master, replicas: {replicas}")),
        }
    }

    /// How full it is.
    fn memory(&self, found: &mut Findings) {
        let (used, most) = (self.number("used_memory"), self.number("maxmemory"));
        let [used_text, most_text] = [used, most].map(|bytes| HumanBytes(bytes).to_string());
        let says = format!("{used_text} of {most_text} used");
        match used.saturating_mul(100).checked_div(most) {
            None => found.warning("memory", format!(
                "{used_text} used, without a bound: a flood of keys ends with the server being killed\n\
                 set maxmemory; the guide on Redis says how much your rules need"
            )),
            Some(..ALARM) => found.fine("memory", says),
            Some(percent @ ALARM..100) => {
                found.warning("memory", format!("{says}, {percent} %\n{MORE}"));
            }
            Some(_) => {
                let full = "full, takes are refused, and each rule's on_store_error answers";
                found.error("memory", format!("{says}: {full}\n{MORE}"));
            }
        }
    }

    /// What is forgotten when it is full, and what was.
    fn eviction(&self, found: &mut Findings) {
        match (self.field("maxmemory_policy"), self.number("evicted_keys")) {
            ("noeviction", 0) => found.fine("eviction", "noeviction, and no key was evicted"),
            ("noeviction", evicted) => found.warning("eviction", format!(
                "{evicted} keys were evicted since the server started: those limits began anew\n\
                 keep maxmemory-policy at noeviction, in redis.conf too, and raise maxmemory"
            )),
            (policy, _) => found.error("eviction", format!(
                "maxmemory-policy is {policy}: when memory is full, limits are forgotten, and those clients begin anew\n\
                 CONFIG SET maxmemory-policy noeviction, and in redis.conf; keep caches on another server"
            )),
        }
    }

    /// What a restart costs.
    fn persistence(&self, longest: Option<Duration>, found: &mut Findings) {
        let mut writes = ["rdb_last_bgsave_status", "aof_last_write_status"].into_iter();
        if writes.any(|status| self.field(status) == "err") {
            return found.error("persistence", "the last write to disk has failed: with stop-writes-on-bgsave-error the server refuses all takes (MISCONF)\n\
                make room on the disk; if the limits last only seconds, write nothing: save \"\" and appendonly no");
        }
        let says = match (self.field("aof_enabled"), self.save.as_deref()) {
            ("1", _) => return found.fine("persistence", "each write is appended to a file"),
            (_, Some("")) => "nothing is written to disk",
            (_, Some(_)) => "snapshots are written now and then",
            (_, None) => "no file is appended to; whether snapshots are written may not be read",
        };
        match longest {
            None => found.note(
                "persistence",
                format!(
                    "{says}: after a restart all clients begin anew\n\
                 give --rules to learn whether that matters; it does for quotas of an hour and more"
                ),
            ),
            Some(longest) if longest < LONG => found.fine("persistence", says),
            Some(longest) => {
                let lasts = report::duration(longest);
                found.warning("persistence", format!(
                    "{says}, and a quota lasts {lasts}: after a restart every client has the whole of it again\n\
                     appendonly yes with appendfsync everysec, and stop-writes-on-bgsave-error no"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check, what a server says with its lines apart by semicolons, its `min-replicas-to-write`, its `save` (`-` is empty), the
    /// longest quota in seconds, and which level and words it gets.
    const CASES: &str = "
        memory      | used_memory:1;maxmemory:0            |   |        |      | warning | 1 B used, without
        memory      | used_memory:699;maxmemory:1000       |   |        |      | ok      | 699 B of
        memory      | used_memory:70\r;maxmemory:100\r     |   |        |      | warning | 70 %
        memory      | used_memory:1536;maxmemory:1536      |   |        |      | error   | 1.50 KiB of
        eviction    | maxmemory_policy:noeviction          |   |        |      | ok      | no key was
        eviction    | maxmemory_policy:noeviction;evicted_keys:1 | |     |      | warning | 1 keys were
        eviction    | maxmemory_policy:volatile-ttl        |   |        |      | error   | are forgotten
        role        | slave0:state=wait_bgsave             | 1 |        |      | error   | NOREPLICAS
        role        | slave0:state=online;slave1:state=wait_bgsave | 0 | |     | ok      | replicas: 1
        role        | slave0:state=online;slave1:state=online | 0 |     |      | note    | one limit more
        role        | slave0:state=online;slave1:state=online | 1 |     |      | ok      | replicas: 2
        persistence | aof_enabled:0                        |   | -      | 60   | ok      | nothing is written
        persistence | aof_enabled:0                        |   | -      |      | note    | give --rules
        persistence | aof_enabled:0                        |   |        | 3600 | warning | may not be read
        persistence | aof_enabled:0                        |   | 3600 1 | 3600 | warning | a quota lasts 1 h
        persistence | aof_enabled:1                        |   |        | 3600 | ok      | is appended
        persistence | rdb_last_bgsave_status:err           |   |        |      | error   | MISCONF
        cluster     | redis_mode:cluster                   |   |        |      | error   | redis-cluster://";

    #[test]
    fn what_a_server_says_of_itself_is_judged() {
        for case in CASES.trim().split('\n') {
            let mut cells = case.split('|').map(str::trim);
            let [check, info, least, save, longest, level, words] =
                [(); 7].map(|()| cells.next().expect("seven cells"));
            let said = |text: &str| (!text.is_empty()).then(|| text.replace('-', ""));
            let server = ServerInfo {
                text: info.replace(';', "\n"),
                min_replicas_to_write: said(least),
                save: said(save),
            };
            let (longest, mut found) = (longest.parse().ok(), Findings::default());
            server.judge(false, longest.map(Duration::from_secs), &mut found);
            let finding = found
                .all
                .iter()
                .find(|finding| finding.check == check)
                .expect("it is looked at");
            let text = format!("{} {}", finding.says, finding.remedy);
            assert_eq!(finding.level.word(), level, "{case}: {finding:?}");
            assert!(text.contains(words), "{case}: {finding:?}");
        }
    }
}
