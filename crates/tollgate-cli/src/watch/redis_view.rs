//! What is in a namespace of Redis: processes, and the rules with most keys, from a sample.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    byte_text::bytes_text,
    doctor::{Server, numbers},
    failure::Failure,
    table::Table,
};

/// Keys that are looked at each time, and how many at once: a sample that no server notices.
const SAMPLE: u64 = 2_000;
const AT_ONCE: &str = "100";
/// Keys of a rule whose memory is asked for.
const MEASURED: u64 = 8;

/// What was seen of one rule.
#[derive(Clone, Debug, Default)]
struct Seen {
    keys: u64,
    measured: u64,
    bytes: u64,
}

/// One look.
pub(crate) async fn view(
    server: &mut Server,
    namespace: &str,
    most: usize,
) -> Result<(String, Value), Failure> {
    let info = server.info().await.unwrap_or_default();
    let processes = server
        .ask::<u64>(&["ZCARD", &format!("{{{namespace}}}:instances")])
        .await;
    let all = server
        .ask::<u64>(&["DBSIZE"])
        .await
        .map_err(|wrong| refused(&wrong))?;
    let (rules, seen) = sample(server, namespace).await?;
    let mut sorted: Vec<_> = rules.iter().collect();
    sorted.sort_by(|(one_name, one), (other_name, other)| {
        other.keys.cmp(&one.keys).then(one_name.cmp(other_name))
    });
    sorted.truncate(most);
    let mut table = Table::new(["rule", "#keys", "#memory"]);
    let mut json_rules = Vec::new();
    for (rule, seen_of_rule) in sorted {
        let keys = match seen {
            0 => 0,
            _ if all <= seen => seen_of_rule.keys,
            _ => (u128::from(seen_of_rule.keys) * u128::from(all) / u128::from(seen)) as u64,
        };
        let bytes = (seen_of_rule.bytes * keys).checked_div(seen_of_rule.measured);
        table.row([
            rule.clone(),
            format!("{}{keys}", if all > seen { "about " } else { "" }),
            bytes.map_or_else(|| "unknown".to_owned(), bytes_text),
        ]);
        json_rules.push(json!({ "rule": rule, "keys": keys, "bytes": bytes }));
    }
    let processes = processes.ok();
    let (used, bound) = (numbers(&info, "used_memory"), numbers(&info, "maxmemory"));
    let (calls, evicted) = (
        numbers(&info, "instantaneous_ops_per_sec"),
        numbers(&info, "evicted_keys"),
    );
    let head = format!(
        "processes {}   keys on the server {all}   commands/s {calls}   memory {} of {}   evicted {evicted}\n\n",
        processes.map_or_else(|| "unknown".to_owned(), |processes| processes.to_string()),
        bytes_text(used),
        if bound == 0 {
            "no bound".to_owned()
        } else {
            bytes_text(bound)
        },
    );
    let json = json!({
        "processes": processes,
        "keys": all,
        "commands_per_second": calls,
        "used_memory": used,
        "maxmemory": bound,
        "evicted_keys": evicted,
        "sample": seen,
        "rules": json_rules,
    });
    Ok((head + &table.text(), json))
}

/// By rule what was seen, and how many keys of all were.
async fn sample(
    server: &mut Server,
    namespace: &str,
) -> Result<(BTreeMap<String, Seen>, u64), Failure> {
    let (mut rules, mut seen, mut cursor) =
        (BTreeMap::<String, Seen>::new(), 0_u64, "0".to_owned());
    loop {
        let page = server
            .ask::<(String, Vec<Vec<u8>>)>(&["SCAN", &cursor, "COUNT", AT_ONCE])
            .await;
        let (next, keys) = page.map_err(|wrong| refused(&wrong))?;
        for key in &keys {
            seen += 1;
            let text = String::from_utf8_lossy(key);
            let Some(rule) = rule_of(&text, namespace) else {
                continue;
            };
            let of_rule = rules.entry(rule.to_owned()).or_default();
            of_rule.keys += 1;
            if of_rule.measured < MEASURED {
                let bytes = server.ask::<Option<u64>>(&["MEMORY", "USAGE", &text]).await;
                if let Ok(Some(bytes)) = bytes {
                    of_rule.measured += 1;
                    of_rule.bytes += bytes;
                }
            }
        }
        cursor = next;
        if cursor == "0" || seen >= SAMPLE {
            return Ok((rules, seen));
        }
    }
}

/// The rule of a state, by its name: the part before the last one. What is no state has none.
fn rule_of<'a>(key: &'a str, namespace: &str) -> Option<&'a str> {
    let rest = match key.strip_prefix('{') {
        Some(rest) => rest.strip_prefix(namespace)?.strip_prefix("}:")?,
        None => key.strip_prefix(namespace)?.strip_prefix(':')?,
    };
    let (rest, format) = rest.rsplit_once(':')?;
    let is_format = matches!(format.as_bytes(), [b'a'..=b'z', b'0'..=b'9']);
    let (_, rule) = rest.split_once(':').filter(|_| is_format)?;
    Some(rule)
}

fn refused(wrong: &redis::RedisError) -> Failure {
    Failure::failed(format!(
        "Redis does not say what is in it: {wrong}; run this as a user who may SCAN, DBSIZE, INFO and MEMORY USAGE, such as an administrator"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_says_its_rule_and_what_is_no_state_has_none() {
        for (key, rule) in [
            ("{shop}:AAAAAAAAAAAAAAAAAAAAAA:api:a1", Some("api")),
            ("{shop}:AAAAAAAAAAAAAAAAAAAAAA:api:v2:w1", Some("api:v2")),
            ("shop:{AAAAAAAAAAAAAAAAAAAAAA}:api:f1", Some("api")),
            ("shop:{AAAA}+BBBB:api:l1", Some("api")),
            ("{shop}:instances", None),
            ("{shop}:rules:audit", None),
            ("{shop}:AAAA:api:counts", None),
            ("{other}:AAAA:api:a1", None),
            ("session:1", None),
        ] {
            assert_eq!(rule_of(key, "shop"), rule, "{key}");
        }
    }
}
