//! Which server it is.

use std::collections::BTreeMap;

use crate::doctor::finding::Finding;

const CHECK: &str = "version";

/// What is known of this server and version.
pub(crate) fn version(info: &BTreeMap<String, String>) -> Finding {
    let text = |name: &str| info.get(name).map(String::as_str);
    if text("dragonfly_version").is_some() {
        return Finding::note(
            CHECK,
            "Dragonfly: not tested with tollgate",
            "nothing that is known; run your own load against it first",
        );
    }
    if text("role") == Some("active-replica") {
        return Finding::error(
            CHECK,
            "KeyDB as active replica: two masters are two limits",
            "use one master, with replicas that take no writes",
        );
    }
    let is_valkey = text("server_name") == Some("valkey");
    let (name, number) = match is_valkey {
        true => ("Valkey", text("valkey_version")),
        false => ("Redis", text("redis_version")),
    };
    let Some(number) = number else {
        return Finding::note(
            CHECK,
            "the server does not say its version",
            "let the user of this command call INFO, or see the settings of the service",
        );
    };
    let says = format!("{name} {number}");
    let parts = numbers(number);
    if !is_valkey && parts < (6, 0, 0) {
        return Finding::warning(
            CHECK,
            format!("{says}: not tested with tollgate, and without users"),
            "take Redis 6.2 or later, or Valkey",
        );
    }
    if escapes_its_cage(parts, is_valkey) {
        return Finding::warning(
            CHECK,
            format!(
                "{says}: a script can leave its cage (CVE-2025-49844), unless your distribution has carried the fix back"
            ),
            "take Redis 6.2.20, 7.2.11, 7.4.6, 8.0.4, 8.2.2 or Valkey 7.2.11, 8.0.6, 8.1.4, 9.0 or later, or a package that says \
             that it has the fix",
        );
    }
    Finding::fine(CHECK, says)
}

fn numbers(text: &str) -> (u32, u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

/// Before the release of its series that fixes CVE-2025-49844.
fn escapes_its_cage((major, minor, patch): (u32, u32, u32), is_valkey: bool) -> bool {
    let redis = [(6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)];
    let valkey = [(7, 2, 11), (8, 0, 6), (8, 1, 4)];
    let fixed: &[(u32, u32, u32)] = if is_valkey { &valkey } else { &redis };
    let series = fixed.iter().find(|(a, b, _)| (*a, *b) == (major, minor));
    match series {
        Some((_, _, first)) => patch < *first,
        // A series that was never fixed is older than the last one that was.
        None => fixed
            .last()
            .is_some_and(|(a, b, _)| (major, minor) < (*a, *b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    fn level(pairs: &[(&str, &str)]) -> Level {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        version(&pairs.collect()).level
    }

    #[test]
    fn each_series_is_measured_by_its_own_fix() {
        for (number, expected) in [
            ("5.0.14", Level::Warning),
            ("6.2.19", Level::Warning),
            ("6.2.20", Level::Fine),
            ("7.0.15", Level::Warning),
            ("7.2.10", Level::Warning),
            ("7.2.11", Level::Fine),
            ("7.4.5", Level::Warning),
            ("7.4.6", Level::Fine),
            ("8.0.3", Level::Warning),
            ("8.0.4", Level::Fine),
            ("8.2.1", Level::Warning),
            ("8.2.2", Level::Fine),
            ("8.4.0", Level::Fine),
        ] {
            assert_eq!(level(&[("redis_version", number)]), expected, "{number}");
        }
        // Valkey says what Redis it is like as well.
        for (number, expected) in [
            ("7.2.10", Level::Warning),
            ("7.2.11", Level::Fine),
            ("8.0.5", Level::Warning),
            ("8.0.6", Level::Fine),
            ("8.1.3", Level::Warning),
            ("8.1.4", Level::Fine),
            ("9.1.0", Level::Fine),
        ] {
            let info = [
                ("server_name", "valkey"),
                ("redis_version", "7.2.4"),
                ("valkey_version", number),
            ];
            assert_eq!(level(&info), expected, "{number}");
        }
        assert_eq!(level(&[]), Level::Note);
        // It says the version of the Redis that it is like.
        let dragonfly = [
            ("dragonfly_version", "df-v1.30.0"),
            ("redis_version", "7.4.6"),
        ];
        assert_eq!(level(&dragonfly), Level::Note);
        assert_eq!(
            level(&[("role", "active-replica"), ("redis_version", "6.3.4")]),
            Level::Error
        );
    }
}
