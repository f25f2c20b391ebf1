//! `tollgate top`: the keys that come most often, as a service's `TopKeysEndpoint` has them.

use clap::Args;
use serde_json::{Value, json};

use crate::{
    report::{Failure, Report, Table},
    web,
};

const EXAMPLES: &str = "\
Examples:
  tollgate top --keys http://127.0.0.1:3000/top-keys
  tollgate top --keys http://127.0.0.1:3000/top-keys --most 5 --json

Which rules deny most is in the service's metrics: `tollgate_requests_total`.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Where a service has its `TopKeysEndpoint`.
    #[arg(long, value_name = "URL")]
    keys: String,

    /// How many keys of each rule.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    most: usize,
}

pub(crate) async fn run(args: &TopArgs) -> Result<Report, Failure> {
    let text = web::fetch(&args.keys).await?;
    let (text, json) = tables(&text, args.most).ok_or_else(|| {
        Failure::failed(format!(
            "{} has no document of top keys; does the service serve a TopKeysEndpoint there?",
            args.keys
        ))
    })?;
    Ok(Report::new(text, json, true))
}

/// Tables for people and programs: at most `most` keys of each rule. `None`: it is another document.
fn tables(text: &str, most: usize) -> Option<(String, Value)> {
    let document: Value = serde_json::from_str(text).ok()?;
    let mut table =
        Table::new("rule | key | label | #requests | #denied, at least | #units, at least");
    let mut rules = Vec::new();
    for rule in document["rules"].as_array()? {
        let name = rule["rule"].as_str()?;
        let mut keys = Vec::new();
        for entry in rule["keys"].as_array()?.iter().take(most) {
            let number = |member: &str| entry[member].as_u64();
            let (at_least, at_most) = (number("at_least")?, number("at_most")?);
            let (denials, cost) = (number("denials")?, number("cost")?);
            let (key, label) = (entry["key"].as_str()?, entry["label"].as_str());
            table.row([
                name.to_owned(),
                key.to_owned(),
                label.unwrap_or_default().to_owned(),
                match at_least == at_most {
                    true => at_least.to_string(),
                    false => format!("{at_least} to {at_most}"),
                },
                denials.to_string(),
                cost.to_string(),
            ]);
            keys.push(entry.clone());
        }
        rules.push(json!({ "rule": name, "keys": keys }));
    }
    let none = "no rule of this service keeps its top keys; tell one so: top_keys = true in a file, .top_keys() in code\n";
    let text = match rules.is_empty() {
        true => none.to_owned(),
        false => table.text(),
    };
    Some((text, json!({ "rules": rules })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_document_is_not_taken_for_top_keys() {
        for text in [
            "",
            "{}",
            "{\"rules\": 7}",
            "{\"rules\": [{}]}",
            "{\"rules\": [{\"rule\": \"api\", \"keys\": [{\"key\": \"x\"}]}]}",
        ] {
            assert!(tables(text, 9).is_none(), "{text}");
        }
        // A count that is not known for sure has two ends.
        for (at_most, requests) in [(4, " 4 "), (6, " 4 to 6 ")] {
            let key = json!({ "key": "AAAA", "at_least": 4, "at_most": at_most, "denials": 1, "cost": 9 });
            let page = json!({ "rules": [{ "rule": "api", "keys": [key] }] });
            let (text, _) = tables(&page.to_string(), 9).expect("it is one");
            assert!(text.contains(requests), "{text}");
        }
        let (text, json) = tables("{\"rules\": []}", 9).expect("it is one");
        assert!(text.contains("top_keys = true"), "{text}");
        assert_eq!(json, json!({ "rules": [] }));
    }
}
