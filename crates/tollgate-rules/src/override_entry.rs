//! A client's own limit, by its key.

use std::sync::Arc;

use tollgate::Key;
use tollgate_core::{Quota, RuleSet, Tick};

use crate::{
    clock::time,
    json_text::content_of,
    node::{Node, Value},
    operator_entry::OperatorEntry,
    reader::{Reader, Term},
    rule_entry::{RuleEntry, without_name},
};

/// The most of a rule's own limit that an override may be, in percent.
const MOST_PERCENT: u64 = 100_000;

/// A client's own limit.
#[derive(Clone)]
pub(crate) struct Override {
    /// A hash of what it says.
    pub(crate) content: u64,
    pub(crate) rule: usize,
    pub(crate) client: Client,
    pub(crate) quota: Quota,
    pub(crate) term: Term,
    /// `None`: it is part of the document.
    pub(crate) set: Option<Arc<OperatorEntry>>,
}

/// Whose limit it is.
#[derive(Clone)]
pub(crate) enum Client {
    Key(Key),
    /// A client that the document knows by a keyed hash only.
    Hash(u128),
}

impl Override {
    /// A limit of none ends with the entry.
    pub(crate) fn limit(&self, quota: Quota) -> Quota {
        match quota.is_none() && self.term.until < Tick::MAX {
            true => quota.until(time(self.term.until)),
            false => quota,
        }
    }

    /// Reads an override of one of these rules, which `named` finds. `has_secret`: keys may be named by their hash.
    pub(crate) fn read(
        reader: Reader<'_>,
        node: &Node,
        rules: &[RuleEntry],
        has_secret: bool,
        named: impl FnOnce(&Node) -> Option<usize>,
    ) -> Option<Self> {
        let fields = reader.fields(node, "an override", "override")?;
        let rule = fields.read("rule", named);
        let term = reader.term(&fields);
        let rule = rule?;
        let entry = &rules[rule];
        if entry.key.is_of_handler() {
            let message = format!(
                "rule {:?} is for handlers, which check without plans; a client's own limit is theirs to choose",
                entry.name
            );
            return reader.refuse(&node.span, message);
        }
        let client = fields.read("key", |node| match &node.value {
            Value::Table(_) => hash(reader, node, has_secret).map(Client::Hash),
            _ => entry
                .key
                .of_text(reader, node, &entry.name)
                .map(Client::Key),
        });
        let quota = fields.read("limit", |node| match &node.value {
            Value::Text(text) if text.trim_end().ends_with('%') => part(reader, node, entry),
            _ => reader.quota(node, Some(&entry.limit)),
        });
        let (client, quota, term) = (client?, quota?, term?);
        if let Some(message) = mistake(entry, quota) {
            fields.wrong("limit", message);
            return None;
        }
        Some(Self {
            content: content_of(node),
            rule,
            client,
            quota,
            term,
            set: None,
        })
    }
}

/// A part of the rule's own limit, as `200%`, and rounded up.
fn part(reader: Reader<'_>, node: &Node, rule: &RuleEntry) -> Option<Quota> {
    let own = rule.limit;
    let permille = reader.permille(node, MOST_PERCENT)?;
    let quota = own.scaled(permille, rule.least_limit());
    if permille == 0 || (quota == own && permille != 1_000) {
        let message = format!("there is no such part of {own}; write a limit, as \"500/s\"");
        return reader.refuse(&node.span, message);
    }
    Some(quota)
}

/// The hash of a key: `{ hash = "9f86d081884c7d659a2feaa0c55ad015" }`.
fn hash(reader: Reader<'_>, node: &Node, has_secret: bool) -> Option<u128> {
    let mut fields = node.fields().iter();
    if let Some((name, _)) = fields.find(|(name, _)| name.text != "hash") {
        // It may be the key, so the message does not repeat it.
        let message = "a key is a text, a list of texts, or a table with hash";
        return reader.refuse(&name.span, message);
    }
    let fields = reader.fields(node, "a key", "key_hash")?;
    let digits = fields.text("hash", "the hash of a key as text")?;
    let number = u128::from_str_radix(digits, 16).ok();
    let number = number.filter(|_| digits.len() == 32 && !digits.starts_with('+'));
    if number.is_none() {
        let message = "this is not the hash of a key; it has 32 hexadecimal digits";
        fields.wrong("hash", message);
    } else if !has_secret {
        let message = "keys are found by their hash with the secret that made it, and there is none; write the key itself, or give \
                       the secret by Bindings::secret";
        fields.wrong("hash", message);
    }
    number
}

/// Why a client of a rule cannot have this limit: an override is a plan, and shares the state with the rule's other quotas.
fn mistake(rule: &RuleEntry, quota: Quota) -> Option<String> {
    // A cost is within it, and neither a wait nor a debt is too long behind it.
    let is_like_own = quota.limit() >= rule.least_limit() && !rule.waits_or_owes();
    if quota.reads_state_of(&rule.limit) && is_like_own {
        return None;
    }
    let with_plan = rule.numbers(&|quota| quota).plan("override", quota);
    let message = without_name(&RuleSet::new([with_plan]).err()?.to_string());
    Some(message.replace("plan \"override\" ", "the override "))
}
