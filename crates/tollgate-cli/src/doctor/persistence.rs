//! Disks, and what they mean for the rules.

use std::{collections::BTreeMap, time::Duration};

use crate::{doctor::finding::Finding, time_text};

const CHECK: &str = "persistence";
/// Quotas of this period are worth a disk.
const LONG: Duration = Duration::from_secs(3_600);

/// `save` is what the server was configured with, if it may be read; `longest` the longest window or refill of the rules, if they
/// are known.
pub(crate) fn persistence(
    info: &BTreeMap<String, String>,
    save: Option<&str>,
    longest: Option<Duration>,
) -> Finding {
    let is = |name: &str, value: &str| info.get(name).is_some_and(|text| text == value);
    if is("rdb_last_bgsave_status", "err") || is("aof_last_write_status", "err") {
        return Finding::error(
            CHECK,
            "the last write to disk has failed: with stop-writes-on-bgsave-error the server refuses all takes (MISCONF)",
            "make room on the disk; if the limits last only seconds, write nothing: save \"\" and appendonly no",
        );
    }
    let (appends, saves) = (
        is("aof_enabled", "1"),
        save.is_some_and(|save| !save.is_empty()),
    );
    let says = match (appends, saves, save) {
        (true, _, _) => "each write is appended to a file",
        (false, true, _) => "snapshots are written now and then",
        (false, false, Some(_)) => "nothing is written to disk",
        (false, false, None) => {
            "no file is appended to; whether snapshots are written may not be read"
        }
    };
    let is_long = longest.is_some_and(|longest| longest >= LONG);
    let long = longest.map(time_text::duration).unwrap_or_default();
    match (appends, saves, is_long) {
        (true, _, false) if longest.is_some() => Finding::note(
            CHECK,
            format!("{says}, and no quota is longer than {long}: what is kept is worth seconds"),
            "appendonly no saves the disk",
        ),
        (false, true, false) => Finding::note(
            CHECK,
            format!("{says}: each costs memory and a pause, and a full disk stops all takes"),
            "for limits that last seconds: save \"\"; for limits of a day or a month: appendonly yes",
        ),
        (false, _, true) => Finding::warning(
            CHECK,
            format!(
                "{says}, and a quota lasts {long}: after a restart every client has the whole of it again"
            ),
            "appendonly yes with appendfsync everysec, and stop-writes-on-bgsave-error no",
        ),
        (false, false, false) if longest.is_none() => Finding::note(
            CHECK,
            format!("{says}: after a restart all clients begin anew"),
            "give --rules to learn whether that matters; it does for quotas of an hour and more",
        ),
        _ => Finding::fine(CHECK, says),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    #[test]
    fn what_a_disk_is_worth_depends_on_the_rules() {
        let (minute, day) = (
            Some(Duration::from_secs(60)),
            Some(Duration::from_secs(86_400)),
        );
        for (aof, save, longest, level) in [
            ("0", Some(""), minute, Level::Fine),
            ("0", Some(""), None, Level::Note),
            ("0", Some(""), day, Level::Warning),
            ("0", Some("3600 1"), minute, Level::Note),
            ("0", Some("3600 1"), day, Level::Warning),
            ("1", Some(""), day, Level::Fine),
            ("1", Some(""), minute, Level::Note),
            ("1", None, None, Level::Fine),
        ] {
            let info = BTreeMap::from([("aof_enabled".to_owned(), aof.to_owned())]);
            let finding = persistence(&info, save, longest);
            assert_eq!(
                finding.level, level,
                "{aof} {save:?} {longest:?}: {finding:?}"
            );
        }
        let failed = BTreeMap::from([("rdb_last_bgsave_status".to_owned(), "err".to_owned())]);
        let finding = persistence(&failed, Some(""), minute);
        assert_eq!(finding.level, Level::Error);
        assert!(finding.remedy.contains("make room"), "{finding:?}");
    }
}
