//! Which client, and under which rules.

use clap::Args;
use serde_json::Value;
use tollgate_core::types::UnknownName;
use tollgate_redis::Partition;
use tollgate_rules::{
    RuleDocument,
    operators::{Explained, Explanation},
};

use crate::{
    failure::Failure, key::states::is_asked, request_args::RequestArgs, rule_args::StateArgs,
    rules::explained_json,
};

/// A client of one rule.
#[derive(Args, Debug)]
pub(crate) struct NamedClient {
    /// The name of the rule.
    pub(crate) rule: String,

    /// The client as it is known: its API key, its address, its tenant. Several parts have tabs between them.
    pub(crate) key: String,
}

impl NamedClient {
    /// What a rule does with it.
    pub(crate) fn explained(
        &self,
        document: &RuleDocument,
        rule: &str,
    ) -> Result<Explanation, Failure> {
        let parts: Vec<&str> = self.key.split('\t').collect();
        let explained = document.explain_key(rule, &parts);
        explained.map_err(|wrong| Failure::usage(wrong.to_string()))
    }
}

/// Which client, and under which rules.
#[derive(Args, Debug)]
pub(crate) struct ClientArgs {
    /// The client as it is known: its API key, its address, its tenant; one text for each part that the rule counts by.
    #[arg(value_name = "PART")]
    parts: Vec<String>,

    /// Only this rule; may be given several times.
    #[arg(long = "rule", value_name = "NAME")]
    pub(super) only: Vec<String>,

    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    pub(crate) states: StateArgs,
}

impl ClientArgs {
    /// What the rules do with the client: those that count, and those that refuse or skip it.
    pub(crate) async fn explained(&self) -> Result<Vec<Explanation>, Failure> {
        let document = self.states.document().await?;
        known_rules(&document, &self.only)?;
        let mut explained = match (self.parts.is_empty(), self.request.is_given()) {
            (false, false) => self.by_parts(&document)?,
            (true, true) => document.explain(&self.request.head()?),
            (true, false) => {
                return Err(Failure::usage(
                    "which client? Give its API key or address, such as `acme-key-1`, or a request, such as \
                     `--path /search -H 'x-api-key: acme-key-1'`",
                ));
            }
            (false, true) => {
                return Err(Failure::usage(
                    "a client is given by its parts or by a request, and here are both; leave out one of them",
                ));
            }
        };
        explained.retain(|it| is_asked(&self.only, &it.rule) || self.lies_with(&it.rule));
        let concerns =
            |rule: &Explanation| rule.counts() || matches!(rule.outcome, Explained::Rejects(_));
        if explained.iter().any(concerns) {
            return Ok(explained);
        }
        let why = explained.iter().map(line).collect::<String>();
        Err(Failure::usage(format!(
            "no rule counts this{}\n`tollgate rules explain` says more",
            why.replace('\n', "\n  ")
        )))
    }

    /// Whether states lie with the client of this rule, so that it is needed to find them.
    fn lies_with(&self, rule: &str) -> bool {
        let partition = self.states.keys.partition.as_ref();
        partition.is_some_and(|named| matches!(named, Partition::ByRule(with) if **with == *rule))
    }

    /// Under each rule whose key may have these parts.
    fn by_parts(&self, document: &RuleDocument) -> Result<Vec<Explanation>, Failure> {
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        let (mut explained, mut refused) = (Vec::new(), None);
        for rule in document.names().filter(|name| is_asked(&self.only, name)) {
            match document.explain_key(rule, &parts) {
                Ok(rule) => explained.push(rule),
                // A rule that was asked for has to take it.
                Err(wrong) if !self.only.is_empty() => {
                    return Err(Failure::usage(wrong.to_string()));
                }
                Err(wrong) => refused = Some(wrong),
            }
        }
        match refused {
            Some(wrong) if explained.is_empty() => Err(Failure::usage(format!(
                "this is not a key of any rule; the last one says: {wrong}"
            ))),
            _ => Ok(explained),
        }
    }
}

/// What a rule does, and what would say more.
fn line(rule: &Explanation) -> String {
    let more = match rule.outcome {
        Explained::DependsOnRequest => ": give its head with -H",
        _ => "",
    };
    format!("\n{}: {}{more}", rule.rule, rule.outcome)
}

/// The rules that may block the client, a line and a part of the JSON for each.
pub(super) fn undecided(explained: &[Explanation]) -> (String, Vec<Value>) {
    let depends = |rule: &&Explanation| rule.outcome == Explained::DependsOnRequest;
    let rules = explained.iter().filter(depends);
    rules.map(|rule| (line(rule), explained_json(rule))).unzip()
}

/// Refuses names that no rule has.
pub(super) fn known_rules(document: &RuleDocument, only: &[String]) -> Result<(), Failure> {
    let is_known = |name: &&String| document.names().any(|known| known == **name);
    match only.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let unknown = UnknownName::new("rule", name, document.names());
            Err(Failure::usage(format!("--rule: {unknown}")))
        }
    }
}
