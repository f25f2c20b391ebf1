//! Who else uses the namespace: two quotas of one rule, two secrets or two partitions give a client more than its limit.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_redis::Secret;

use crate::{
    doctor::{
        finding::{
            Finding,
            Level::{Error, Fine, Note, Warning},
        },
        server::{Server, words},
    },
    printable,
};

/// What instances say of themselves: how many there are, which quotas they have, and how they write keys.
pub(crate) async fn instances(
    server: &mut Server,
    namespace: &str,
    secret: Option<&Secret>,
) -> Vec<Finding> {
    const CHECK: &str = "instances";
    let (processes, said) = (
        format!("{{{namespace}}}:instances"),
        format!("{{{namespace}}}:quotas"),
    );
    let processes = server.ask::<u64>(&["ZCARD", &processes]).await;
    let said = server
        .ask::<Vec<String>>(&["ZRANGE", &said, "0", "-1"])
        .await;
    let (processes, said) = match (processes, said) {
        (Ok(processes), Ok(said)) => (processes, said),
        // Another server of the cluster has them.
        (Err(wrong), _) | (_, Err(wrong)) if wrong.code() == Some("MOVED") => return Vec::new(),
        (Err(wrong), _) | (_, Err(wrong)) => {
            return vec![Note.of(
                CHECK,
                format!(
                    "who else uses the namespace may not be read: {}",
                    words(&wrong)
                ),
                "run this as a user who may ZCARD and ZRANGE, such as an administrator",
            )];
        }
    };
    let mut findings = vec![match processes {
        0 => Note.of(
            CHECK,
            format!("no process says that it uses the namespace {namespace}"),
            "is this the namespace of the service, and does it run? Services without heartbeats are not seen",
        ),
        _ => Fine.of(
            CHECK,
            format!("processes that use the namespace {namespace}: {processes}"),
            "",
        ),
    }];
    let mut by_rule: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (rule, words) in said.iter().filter_map(|member| member.split_once('\n')) {
        by_rule.entry(rule).or_default().insert(words);
    }
    let writers = by_rule.remove("").unwrap_or_default();
    for (rule, quotas) in by_rule.iter().filter(|(_, quotas)| quotas.len() > 1) {
        findings.push(Warning.of(
            "quotas",
            format!(
                "processes have {} quotas for the rule {}: {}",
                quotas.len(),
                printable::line(rule, 70),
                listed(quotas, 200)
            ),
            "normal while a new version is deployed; if it lasts, give the rule one quota, another name, or the services \
             namespaces of their own",
        ));
    }
    findings.extend(writers_differ(&writers, secret.map(Secret::tag).as_deref()));
    findings
}

fn listed(words: &BTreeSet<&str>, longest: usize) -> String {
    let words: Vec<_> = words
        .iter()
        .map(|words| printable::line(words, longest))
        .collect();
    words.join(" and ")
}

/// `partition tag [tag…]` of each writer, and the tag of the secret that this command was given.
fn writers_differ(writers: &BTreeSet<&str>, own: Option<&str>) -> Vec<Finding> {
    const CHECK: &str = "keys";
    let mut findings = Vec::new();
    let mut partitions = BTreeSet::new();
    // The first tag is that by which a process writes; it finds what the others have written too.
    let mut tags: Vec<Vec<&str>> = Vec::new();
    for writer in writers {
        let mut words = writer.split(' ');
        partitions.extend(words.next());
        tags.push(words.collect());
    }
    if partitions.len() > 1 {
        findings.push(Error.of(
            CHECK,
            format!(
                "processes have different partitions, {}: a client has a budget by each",
                listed(&partitions, 80)
            ),
            "give all processes one Partition",
        ));
    }
    let mut written = tags.iter().filter_map(|tags| tags.first());
    if written.any(|tag| tags.iter().any(|known| !known.contains(tag))) {
        findings.push(Error.of(
            CHECK,
            "processes write keys by different secrets: a client has a budget by each",
            "give all processes the same secret; to change it, take the three steps of tollgate_redis::Keys",
        ));
    }
    if let Some(own) = own
        && !tags.is_empty()
        && !tags.iter().any(|known| known.contains(&own))
    {
        findings.push(Error.of(
            CHECK,
            "the secret here is not that of the processes: `tollgate key` finds none of their states",
            "take the secret of the service, by TOLLGATE_SECRET or --secret-file",
        ));
    }
    if findings.is_empty() && !tags.is_empty() {
        findings.push(Fine.of(CHECK, "all processes write keys alike", ""));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_secrets_or_partitions_are_an_error_and_a_change_of_secrets_is_none() {
        for (writers, own, level) in [
            (&[][..], Some("aa"), None),
            (&["one aa"], Some("aa"), Some(Fine)),
            (&["one aa"], None, Some(Fine)),
            (&["one aa"], Some("bb"), Some(Error)),
            (&["one aa", "one bb"], None, Some(Error)),
            (&["one aa", "key aa"], None, Some(Error)),
            // Keys that are not hashed have no secret.
            (&["one"], None, Some(Fine)),
            // A step of a change and the next one.
            (&["one aa bb", "one bb aa"], Some("aa"), Some(Fine)),
            (&["one aa bb", "one bb"], None, Some(Error)),
        ] {
            let findings = writers_differ(&writers.iter().copied().collect(), own);
            let worst = findings.iter().map(|finding| finding.level).max();
            assert_eq!(worst, level, "{writers:?} {own:?}");
        }
    }
}
