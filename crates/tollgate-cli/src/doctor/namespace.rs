//! Who else uses the namespace, and what else is on the server.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_redis::Secret;

use crate::{
    doctor::{
        finding::Finding,
        server::{Server, words},
    },
    printable,
};

/// Keys of the server that are looked at, and how many at once.
const KEYS: usize = 2_000;
const AT_ONCE: &str = "200";

/// What instances say of themselves: how many there are, which quotas they have, and how they write keys.
pub(crate) async fn instances(
    server: &mut Server,
    namespace: &str,
    secret: Option<&Secret>,
) -> Vec<Finding> {
    const CHECK: &str = "instances";
    let key = format!("{{{namespace}}}:instances");
    let all = server.ask::<u64>(&["ZCARD", &key]).await;
    let members = server
        .ask::<Vec<String>>(&["ZRANGE", &format!("{{{namespace}}}:quotas"), "0", "-1"])
        .await;
    let (all, members) = match (all, members) {
        (Ok(all), Ok(members)) => (all, members),
        // Another server of the cluster has them.
        (Err(wrong), _) | (_, Err(wrong)) if wrong.code() == Some("MOVED") => return Vec::new(),
        (Err(wrong), _) | (_, Err(wrong)) => {
            return vec![Finding::note(
                CHECK,
                format!(
                    "who else uses the namespace may not be read: {}",
                    words(&wrong)
                ),
                "run this as a user who may ZCARD, ZRANGE and SCAN, such as an administrator",
            )];
        }
    };
    let mut findings = vec![match all {
        0 => Finding::note(
            CHECK,
            format!("no process says that it uses the namespace {namespace}"),
            "is this the namespace of the service, and does it run? Services without heartbeats are not seen",
        ),
        1 => Finding::fine(CHECK, format!("one process uses the namespace {namespace}")),
        _ => Finding::fine(
            CHECK,
            format!("{all} processes use the namespace {namespace}"),
        ),
    }];
    let mut said: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (rule, words) in members.iter().filter_map(|member| member.split_once('\n')) {
        said.entry(rule).or_default().insert(words);
    }
    let writers = said.remove("").unwrap_or_default();
    findings.extend(quotas(&said));
    findings.extend(secrets(&writers, secret.map(Secret::tag).as_deref()));
    findings
}

fn quotas(said: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Finding> {
    const CHECK: &str = "quotas";
    let conflicts = said.iter().filter(|(_, quotas)| quotas.len() > 1);
    let mut findings: Vec<Finding> = conflicts
        .map(|(rule, quotas)| {
            let quotas = quotas.iter().map(|quota| printable::line(quota, 200));
            let quotas: Vec<_> = quotas.collect();
            Finding::warning(
                CHECK,
                format!(
                    "processes have {} quotas for the rule {}: {}",
                    quotas.len(),
                    printable::line(rule, 70),
                    quotas.join(" and ")
                ),
                "normal while a new version is deployed; if it lasts, give the rule one quota, another name, or the services \
                 namespaces of their own",
            )
        })
        .collect();
    if findings.is_empty() && !said.is_empty() {
        findings.push(Finding::fine(
            CHECK,
            format!("{} rules, each with one quota", said.len()),
        ));
    }
    findings
}

/// `partition tag [tag…]` of each writer, and the tag of the secret that this command was given.
fn secrets(writers: &BTreeSet<&str>, own: Option<&str>) -> Vec<Finding> {
    const CHECK: &str = "keys";
    let words = || {
        writers
            .iter()
            .map(|words| words.split(' ').collect::<Vec<_>>())
    };
    let partitions: BTreeSet<&str> = words().filter_map(|words| words.first().copied()).collect();
    let mut findings = Vec::new();
    if partitions.len() > 1 {
        let partitions: Vec<_> = partitions
            .iter()
            .map(|name| printable::line(name, 80))
            .collect();
        findings.push(Finding::error(
            CHECK,
            format!(
                "processes have different partitions, {}: a client has a budget by each",
                partitions.join(" and ")
            ),
            "give all processes one Partition",
        ));
    }
    let meets = |one: &[&str], other: &[&str]| {
        let written = |words: &[&str]| words.get(1).map(|tag| (*tag).to_owned());
        let knows = |words: &[&str], tag: Option<String>| {
            tag.is_none_or(|tag| words.iter().skip(1).any(|known| *known == tag))
        };
        knows(one, written(other)) && knows(other, written(one))
    };
    let all: Vec<Vec<&str>> = words().collect();
    let differ = all
        .iter()
        .any(|one| all.iter().any(|other| !meets(one, other)));
    if differ {
        findings.push(Finding::error(
            CHECK,
            "processes write keys by different secrets: a client has a budget by each",
            "give all processes the same secret; to change it, take the three steps of tollgate_redis::Keys",
        ));
    }
    let is_own = |own: &str| {
        all.iter()
            .any(|words| words.iter().skip(1).any(|tag| *tag == own))
    };
    if let Some(own) = own
        && !all.is_empty()
        && !is_own(own)
    {
        findings.push(Finding::error(
            CHECK,
            "the secret here is not that of the processes: `tollgate key` finds none of their states",
            "take the secret of the service, by TOLLGATE_SECRET or --secret-file",
        ));
    }
    if findings.is_empty() && !all.is_empty() {
        findings.push(Finding::fine(CHECK, "all processes write keys alike"));
    }
    findings
}

/// What else is on the server, by a sample of its keys.
pub(crate) async fn neighbours(server: &mut Server, namespace: &str) -> Finding {
    const CHECK: &str = "neighbours";
    let (mut seen, mut own, mut others) = (0_usize, 0_usize, BTreeSet::new());
    let mut cursor = "0".to_owned();
    loop {
        let page = server
            .ask::<(String, Vec<Vec<u8>>)>(&["SCAN", &cursor, "COUNT", AT_ONCE])
            .await;
        let (next, keys) = match page {
            Ok(page) => page,
            Err(wrong) => {
                return Finding::note(
                    CHECK,
                    format!(
                        "what else is on the server may not be read: {}",
                        words(&wrong)
                    ),
                    "run this as a user who may SCAN, such as an administrator",
                );
            }
        };
        for key in &keys {
            seen += 1;
            match namespace_of(&String::from_utf8_lossy(key)) {
                Some(found) if found == namespace => own += 1,
                Some(found) => {
                    others.insert(found);
                }
                None => {}
            }
        }
        cursor = next;
        if cursor == "0" || seen >= KEYS {
            break;
        }
    }
    let foreign = seen - own;
    if foreign == 0 {
        return Finding::fine(CHECK, format!("all of {seen} keys are of the namespace"));
    }
    let named: Vec<_> = others
        .iter()
        .take(5)
        .map(|name| printable::line(name, 64))
        .collect();
    let named = match named.is_empty() {
        true => String::new(),
        false => format!("; other namespaces of limits: {}", named.join(", ")),
    };
    Finding::note(
        CHECK,
        format!("{foreign} of {seen} keys are not of the namespace{named}"),
        "other data shares the memory, the processor and the outages of this server: keep caches and queues on another one, and give \
         each service a user of its own",
    )
}

/// The namespace of a key that tollgate has written.
fn namespace_of(key: &str) -> Option<String> {
    match key.strip_prefix('{') {
        Some(rest) => rest.split_once("}:").map(|(name, _)| name.to_owned()),
        None => key.split_once(":{").map(|(name, _)| name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    fn worst(writers: &[&str], own: Option<&str>) -> Option<Level> {
        let findings = secrets(&writers.iter().copied().collect(), own);
        findings.iter().map(|finding| finding.level).max()
    }

    #[test]
    fn two_secrets_or_partitions_are_an_error_and_a_change_of_secrets_is_none() {
        assert_eq!(worst(&[], Some("aa")), None);
        assert_eq!(worst(&["one aa"], Some("aa")), Some(Level::Fine));
        assert_eq!(worst(&["one aa"], None), Some(Level::Fine));
        assert_eq!(worst(&["one aa"], Some("bb")), Some(Level::Error));
        assert_eq!(worst(&["one aa", "one bb"], None), Some(Level::Error));
        assert_eq!(worst(&["one aa", "key aa"], None), Some(Level::Error));
        // Keys that are not hashed have no secret.
        assert_eq!(worst(&["one"], None), Some(Level::Fine));
        // A step of a change and the next one.
        assert_eq!(
            worst(&["one aa bb", "one bb aa"], Some("aa")),
            Some(Level::Fine)
        );
        assert_eq!(worst(&["one aa bb", "one bb"], None), Some(Level::Error));
    }

    #[test]
    fn a_key_says_its_namespace_by_either_form() {
        for (key, namespace) in [
            ("{shop}:AAAAAAAAAAAAAAAAAAAAAA:api:a1", Some("shop")),
            ("shop:eu:{AAAAAAAAAAAAAAAAAAAAAA}:api:a1", Some("shop:eu")),
            ("session:4711", None),
        ] {
            assert_eq!(namespace_of(key).as_deref(), namespace, "{key}");
        }
    }
}
