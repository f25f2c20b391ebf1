//! Who else uses the namespace: two quotas of one rule, two secrets or two partitions give a client more than its limit.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_redis::Secret;

use crate::{
    doctor::{
        access::{Server, words},
        finding::Findings,
    },
    report,
};

/// What instances say of themselves: how many there are, which quotas they have, and how they write keys.
pub(crate) async fn instances(
    server: &mut Server,
    namespace: &str,
    secret: Option<&Secret>,
    found: &mut Findings,
) {
    let [instances, quotas] = ["instances", "quotas"].map(|name| format!("{{{namespace}}}:{name}"));
    let processes = server.ask::<u64>(&["ZCARD", &instances]).await;
    let quotas = server
        .ask::<Vec<String>>(&["ZRANGE", &quotas, "0", "-1"])
        .await;
    let said = match (processes, quotas) {
        (Ok(0), Ok(said)) => {
            found.note("instances", format!(
                "no process says that it uses the namespace {namespace}\n\
                 is this the namespace of the service, and does it run? Services without heartbeats are not seen"
            ));
            said
        }
        (Ok(processes), Ok(said)) => {
            let says = format!("processes that use the namespace {namespace}: {processes}");
            found.fine("instances", says);
            said
        }
        // Another server of the cluster has them.
        (Err(wrong), _) | (_, Err(wrong)) if wrong.code() == Some("MOVED") => return,
        (Err(wrong), _) | (_, Err(wrong)) => {
            let why = words(&wrong);
            return found.note(
                "instances",
                format!(
                    "who else uses the namespace may not be read: {why}\n\
                 run this as a user who may ZCARD and ZRANGE, such as an administrator"
                ),
            );
        }
    };
    let mut by_rule: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (rule, words) in said.iter().filter_map(|member| member.split_once('\n')) {
        by_rule.entry(rule).or_default().insert(words);
    }
    let writers = by_rule.remove("").unwrap_or_default();
    for (rule, quotas) in by_rule.iter().filter(|(_, quotas)| quotas.len() > 1) {
        let (count, quotas) = (quotas.len(), listed(quotas));
        let rule = report::line(rule, 70);
        found.warning("quotas", format!(
            "processes have {count} quotas for the rule {rule}: {quotas}\n\
             normal while a new version is deployed; if it lasts, give the rule one quota, another name, or the services \
             namespaces of their own"
        ));
    }
    compare_writers(&writers, secret.map(Secret::tag).as_deref(), found);
}

fn listed(words: &BTreeSet<&str>) -> String {
    let words = words.iter().map(|words| report::line(words, 200));
    words.collect::<Vec<_>>().join(" and ")
}

/// `partition tag [tag…]` of each writer, and the tag of the secret that this command was given.
fn compare_writers(writers: &BTreeSet<&str>, own: Option<&str>, found: &mut Findings) {
    let writers = writers
        .iter()
        .map(|it| it.split_once(' ').unwrap_or((it, "")));
    let (partitions, tags): (BTreeSet<&str>, Vec<&str>) = writers.unzip();
    if tags.is_empty() {
        return;
    }
    // The first tag is that by which a process writes; it finds what the others have written too.
    let knows = |tags: &&str, tag: &str| tag.is_empty() || tags.split(' ').any(|it| it == tag);
    let mut written = tags
        .iter()
        .map(|tags| tags.split(' ').next().unwrap_or_default());
    let is_missed = written.any(|tag| !tags.iter().all(|tags| knows(tags, tag)));
    let is_unknown = own.is_some_and(|own| !tags.iter().any(|tags| knows(tags, own)));
    if partitions.len() > 1 {
        let partitions = listed(&partitions);
        found.error(
            "keys",
            format!(
                "processes have different partitions, {partitions}: a client has a budget by each\n\
             give all processes one Partition"
            ),
        );
    }
    if is_missed {
        found.error("keys", "processes write keys by different secrets: a client has a budget by each\n\
            give all processes the same secret; to change it, take the three steps of tollgate_redis::Keys");
    }
    if is_unknown {
        found.error("keys", "the secret here is not that of the processes: `tollgate key` finds none of their states\n\
            take the secret of the service, by TOLLGATE_SECRET or --secret-file");
    }
    if partitions.len() == 1 && !is_missed && !is_unknown {
        found.fine("keys", "all processes write keys alike");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    #[test]
    fn two_secrets_or_partitions_are_an_error_and_a_change_of_secrets_is_none() {
        for (writers, own, level) in [
            (&[][..], Some("aa"), None),
            (&["one aa"], Some("aa"), Some(Level::Fine)),
            (&["one aa"], None, Some(Level::Fine)),
            (&["one aa"], Some("bb"), Some(Level::Error)),
            (&["one aa", "one bb"], None, Some(Level::Error)),
            (&["one aa", "key aa"], None, Some(Level::Error)),
            // Keys that are not hashed have no secret.
            (&["one"], None, Some(Level::Fine)),
            // A step of a change and the next one.
            (&["one aa bb", "one bb aa"], Some("aa"), Some(Level::Fine)),
            (&["one aa bb", "one bb"], None, Some(Level::Error)),
        ] {
            let mut found = Findings::default();
            compare_writers(&writers.iter().copied().collect(), own, &mut found);
            let worst = found.all.iter().map(|finding| finding.level).max();
            assert_eq!(worst, level, "{writers:?} {own:?}");
        }
    }
}
