//! Whether it is the master, and what a failover would cost.

use std::collections::BTreeMap;

use crate::doctor::{finding::Finding, server::numbers};

const CHECK: &str = "role";

/// `least` is `min-replicas-to-write`, if it may be read.
pub(crate) fn replication(info: &BTreeMap<String, String>, least: Option<&str>) -> Finding {
    let text = |name: &str| info.get(name).map_or("", String::as_str);
    if text("role") == "slave" {
        let master = format!("{}:{}", text("master_host"), text("master_port"));
        return Finding::error(
            CHECK,
            format!(
                "this is a replica of {master}: it refuses writes, and its states lag behind those of the master"
            ),
            format!(
                "give the address of the master, {master}, or of the sentinels: redis-sentinel://one,two,three/name-of-the-master"
            ),
        );
    }
    let replicas = numbers(info, "connected_slaves");
    let guards = least.is_some_and(|least| least != "0");
    match replicas {
        0 if guards => Finding::error(
            CHECK,
            "min-replicas-to-write is set, and no replica is connected: writes are refused (NOREPLICAS)",
            "start the replicas, or set min-replicas-to-write 0",
        ),
        0 => Finding::fine(CHECK, "a master without replicas"),
        1 => Finding::fine(CHECK, "a master with a replica"),
        _ if !guards && least.is_some() => Finding::note(
            CHECK,
            format!(
                "a master with {replicas} replicas: after a failover an old master that was cut off goes on accepting, up to one limit more"
            ),
            "min-replicas-to-write 1 and min-replicas-max-lag 5 bound that to seconds",
        ),
        _ => Finding::fine(CHECK, format!("a master with {replicas} replicas")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    #[test]
    fn a_replica_is_an_error_that_names_its_master() {
        let info = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            pairs.collect()
        };
        let replica = info(&[
            ("role", "slave"),
            ("master_host", "one"),
            ("master_port", "7"),
        ]);
        let finding = replication(&replica, None);
        assert_eq!(finding.level, Level::Error);
        assert!(finding.remedy.contains("one:7"), "{finding:?}");
        let none = info(&[("role", "master")]);
        let finding = replication(&none, Some("1"));
        assert!(finding.remedy.contains("start the replicas"), "{finding:?}");
        let master = |replicas| info(&[("role", "master"), ("connected_slaves", replicas)]);
        for (replicas, least, level) in [
            ("0", None, Level::Fine),
            ("0", Some("1"), Level::Error),
            ("1", Some("0"), Level::Fine),
            ("2", Some("0"), Level::Note),
            ("2", Some("1"), Level::Fine),
            ("2", None, Level::Fine),
        ] {
            assert_eq!(
                replication(&master(replicas), least).level,
                level,
                "{replicas} {least:?}"
            );
        }
        let finding = replication(&master("2"), Some("0"));
        assert!(
            finding.remedy.contains("min-replicas-max-lag"),
            "{finding:?}"
        );
    }
}
