//! `tollgate top`: the keys that come most often, as a service's `TopKeysEndpoint` has them.

use std::{error::Error, time::Duration};

use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    args::parse_url,
    report::{Failure, Report, Table, causes},
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

const PATIENCE: Duration = Duration::from_secs(5);
/// The largest page that is read.
const LARGEST: usize = 64 << 20;

pub(crate) async fn run(args: &TopArgs) -> Result<Report, Failure> {
    let uri = parse_url(&args.keys, "http://127.0.0.1:3000/top-keys")?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let page = async {
        let response = client.get(uri).await?;
        if !response.status().is_success() {
            return Err(format!("it answers {}", response.status().as_u16()).into());
        }
        let page = Limited::new(response.into_body(), LARGEST)
            .collect()
            .await?;
        report(&page.to_bytes(), args.most).ok_or_else(|| "it has no document of top keys".into())
    };
    let late = |_| Err(format!("it has not answered within {PATIENCE:?}").into());
    let page = timeout(PATIENCE, page).await.unwrap_or_else(late);
    page.map_err(|wrong: Box<dyn Error + Send + Sync>| {
        Failure::failed(format!(
            "{}: {}; does the service run, and serve a TopKeysEndpoint there?",
            args.keys,
            causes(&*wrong)
        ))
    })
}

/// At most `most` keys of each rule. `None`: it is another document.
fn report(page: &[u8], most: usize) -> Option<Report> {
    let mut document: Value = serde_json::from_slice(page).ok()?;
    let mut table =
        Table::new("rule | key | label | #requests | #denied, at least | #units, at least");
    let rules = document.get_mut("rules")?.as_array_mut()?;
    for rule in &mut *rules {
        let name = rule.get("rule")?.as_str()?.to_owned();
        let keys = rule.get_mut("keys")?.as_array_mut()?;
        keys.truncate(most);
        for entry in keys {
            let number = |member| entry.get(member)?.as_u64();
            let (at_least, at_most) = (number("at_least")?, number("at_most")?);
            table.row([
                name.clone(),
                entry.get("key")?.as_str()?.to_owned(),
                entry["label"].as_str().unwrap_or_default().to_owned(),
                match at_least == at_most {
                    true => at_least.to_string(),
                    false => format!("{at_least} to {at_most}"),
                },
                number("denials")?.to_string(),
                number("cost")?.to_string(),
            ]);
        }
    }
    let none = "no rule of this service keeps its top keys; tell one so: top_keys = true in a file, .top_keys() in code";
    let text = match rules.is_empty() {
        true => none.to_owned(),
        false => table.text(),
    };
    Some(Report::new(text, document, true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_document_is_not_taken_for_top_keys() {
        for text in [
            "",
            "7",
            "{}",
            "{\"rules\": 7}",
            "{\"rules\": [{}]}",
            "{\"rules\": [{\"rule\": \"api\", \"keys\": [{\"key\": \"x\"}]}]}",
        ] {
            assert!(report(text.as_bytes(), 9).is_none(), "{text}");
        }
        // A count that is not known for sure has two ends.
        for (at_most, requests) in [(4, " 4 "), (6, " 4 to 6 ")] {
            let key = json!({ "key": "AAAA", "at_least": 4, "at_most": at_most, "denials": 1, "cost": 9 });
            let page = json!({ "rules": [{ "rule": "api", "keys": [key] }] });
            let shown = report(page.to_string().as_bytes(), 9).expect("it is one");
            assert!(shown.text.contains(requests), "{}", shown.text);
        }
        let shown = report(b"{\"rules\": []}", 9).expect("it is one");
        assert!(shown.text.contains("top_keys = true"), "{}", shown.text);
    }
}
