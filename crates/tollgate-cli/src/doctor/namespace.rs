//! Who else uses the namespace: two quotas of one rule, two secrets or two partitions give a client more than its limit.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_redis::Secret;

use crate::{
    doctor::{
        finding::{
            Finding,
            Level::{Error, Fine, Note, Warning},
        },
        servers::{Server, words},
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
    let [processes, said] = ["instances", "quotas"].map(|name| format!("{{{namespace}}}:{name}"));
    let processes = server.ask::<u64>(&["ZCARD", &processes]).await;
    let said = server
        .ask::<Vec<String>>(&["ZRANGE", &said, "0", "-1"])
        .await;
    let (processes, said) = match processes.and_then(|processes| Ok((processes, said?))) {
        Ok(answered) => answered,
        // Another server of the cluster has them.
        Err(wrong) if wrong.code() == Some("MOVED") => return Vec::new(),
        Err(wrong) => {
            let why = words(&wrong);
            return vec![Note.of(
                CHECK,
                format!("who else uses the namespace may not be read: {why}"),
                "run this as a user who may ZCARD and ZRANGE, such as an administrator",
            )];
        }
    };
    let says = format!("processes that use the namespace {namespace}: {processes}");
    let mut findings = vec![match processes {
        0 => Note.of(
            CHECK,
            format!("no process says that it uses the namespace {namespace}"),
            "is this the namespace of the service, and does it run? Services without heartbeats are not seen",
        ),
        _ => Fine.of(CHECK, says, ""),
    }];
    let mut by_rule: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (rule, words) in said.iter().filter_map(|member| member.split_once('\n')) {
        by_rule.entry(rule).or_default().insert(words);
    }
    let writers = by_rule.remove("").unwrap_or_default();
    for (rule, quotas) in by_rule.iter().filter(|(_, quotas)| quotas.len() > 1) {
        let (count, quotas) = (quotas.len(), listed(quotas));
        let rule = printable::line(rule, 70);
        findings.push(Warning.of(
            "quotas",
            format!("processes have {count} quotas for the rule {rule}: {quotas}"),
            "normal while a new version is deployed; if it lasts, give the rule one quota, another name, or the services \
             namespaces of their own",
        ));
    }
    findings.extend(writers_differ(&writers, secret.map(Secret::tag).as_deref()));
    findings
}

fn listed(words: &BTreeSet<&str>) -> String {
    let words: Vec<_> = words
        .iter()
        .map(|words| printable::line(words, 200))
        .collect();
    words.join(" and ")
}

/// `partition tag [tag…]` of each writer, and the tag of the secret that this command was given.
fn writers_differ(writers: &BTreeSet<&str>, own: Option<&str>) -> Vec<Finding> {
    let writers = writers
        .iter()
        .map(|it| it.split_once(' ').unwrap_or((it, "")));
    let writers: Vec<(&str, &str)> = writers.collect();
    let partitions: BTreeSet<&str> = writers.iter().map(|(partition, _)| *partition).collect();
    // The first tag is that by which a process writes; it finds what the others have written too.
    let knows = |tags: &str, tag: &str| tag.is_empty() || tags.split(' ').any(|it| it == tag);
    let mut written = writers
        .iter()
        .map(|(_, tags)| tags.split(' ').next().unwrap_or_default());
    let mut errors = Vec::new();
    if partitions.len() > 1 {
        let partitions = listed(&partitions);
        let says = format!(
            "processes have different partitions, {partitions}: a client has a budget by each"
        );
        errors.push(Error.of("keys", says, "give all processes one Partition"));
    }
    if written.any(|tag| writers.iter().any(|(_, tags)| !knows(tags, tag))) {
        errors.push(Error.of(
            "keys",
            "processes write keys by different secrets: a client has a budget by each",
            "give all processes the same secret; to change it, take the three steps of tollgate_redis::Keys",
        ));
    }
    if own.is_some_and(|own| !writers.iter().any(|(_, tags)| knows(tags, own)))
        && !writers.is_empty()
    {
        errors.push(Error.of(
            "keys",
            "the secret here is not that of the processes: `tollgate key` finds none of their states",
            "take the secret of the service, by TOLLGATE_SECRET or --secret-file",
        ));
    }
    if errors.is_empty() && !writers.is_empty() {
        errors.push(Fine.of("keys", "all processes write keys alike", ""));
    }
    errors
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
