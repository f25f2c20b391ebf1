//! A client's own limit, by its key.

use std::sync::Arc;

use tollgate::Key;
use tollgate_core::{Quota, RuleSet, Tick};

use crate::{
    clock::time,
    node::{Node, Value},
    operator_entry::OperatorEntry,
    reader::{At, Reader, Term},
    rule_entry::{RuleEntry, without_name},
    switch_entry::scaled,
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

    /// Reads an override of a rule that `named` finds, with its index. `has_secret`: keys may be named by their hash.
    pub(crate) fn read<'r>(
        reader: Reader<'_>,
        node: &Node,
        has_secret: bool,
        named: impl FnOnce(&Node) -> Option<(usize, &'r RuleEntry)>,
    ) -> Option<Self> {
        let fields = reader.fields(node, "an override", "override")?;
        let rule = fields.required("rule", "\"search-per-key\"");
        let rule = rule.and_then(named);
        let term = reader.term(&fields);
        let key = fields.required("key", "\"acme-key-1\"");
        let quota = fields.required("limit", "\"500/s\"");
        let (rule, entry) = rule?;
        if entry.key.is_of_handler() {
            let message = format!(
                "rule {:?} is for handlers, which check without plans; a client's own limit is theirs to choose",
                entry.name.value
            );
            reader.wrong(&node.span, message);
            return None;
        }
        let client = key.and_then(|node| match &node.value {
            Value::Table(_) => hash(reader, node, has_secret).map(Client::Hash),
            _ => {
                let key = entry.key.of_text(reader, node, &entry.name.value);
                key.map(Client::Key)
            }
        });
        let quota = quota.and_then(|node| match &node.value {
            Value::Text(text) if text.trim_end().ends_with('%') => part(reader, node, entry),
            _ => reader.quota(node, Some(&entry.limit.value)),
        });
        let (client, quota, term) = (client?, quota?, term?);
        refuse_override(reader, entry, &quota)?;
        Some(Self {
            content: node.content(),
            rule,
            client,
            quota: quota.value,
            term,
            set: None,
        })
    }
}

/// A part of the rule's own limit, as `200%`, and rounded up.
fn part(reader: Reader<'_>, node: &Node, rule: &RuleEntry) -> Option<At<Quota>> {
    let own = rule.limit.value;
    let permille = reader.permille(node, MOST_PERCENT)?;
    let value = scaled(own, permille, rule.least_limit());
    if permille == 0 || (value == own && permille != 1_000) {
        let message = format!("there is no such part of {own}; write a limit, as \"500/s\"");
        reader.wrong(&node.span, message);
        return None;
    }
    let span = node.span.clone();
    Some(At { span, value })
}

/// The hash of a key: `{ hash = "9f86d081884c7d659a2feaa0c55ad015" }`.
fn hash(reader: Reader<'_>, node: &Node, has_secret: bool) -> Option<u128> {
    if let Value::Table(fields) = &node.value
        && let Some((name, _)) = fields.iter().find(|(name, _)| name.text != "hash")
    {
        // It may be the key, so the message does not repeat it.
        reader.wrong(
            &name.span,
            "a key is a text, a list of texts, or a table with hash",
        );
        return None;
    }
    let fields = reader.fields(node, "a key", "key_hash")?;
    let hash = fields.required("hash", "32 hexadecimal digits")?;
    let digits = reader.text(hash, "the hash of a key as text")?;
    let number = u128::from_str_radix(digits.value, 16).ok();
    let number = number.filter(|_| digits.value.len() == 32 && !digits.value.starts_with('+'));
    if number.is_none() {
        let message = "this is not the hash of a key; it has 32 hexadecimal digits";
        reader.wrong(&digits.span, message);
    } else if !has_secret {
        let message = "keys are found by their hash with the secret that made it, and there is none; write the key itself, or give \
                       the secret by Bindings::secret";
        reader.wrong(&hash.span, message);
    }
    number
}

/// An override is a plan: it shares the state with the rule's other quotas.
fn refuse_override(reader: Reader<'_>, rule: &RuleEntry, quota: &At<Quota>) -> Option<()> {
    let own = &rule.limit.value;
    // A cost is within it, and neither a wait nor a debt is too long behind it.
    let is_like_own = quota.value.limit() >= rule.least_limit() && !rule.waits_or_owes();
    if quota.value.reads_state_of(own) && is_like_own {
        return Some(());
    }
    let with_plan = rule.numbers(&|quota| quota).plan("override", quota.value);
    match RuleSet::new([with_plan]) {
        Ok(_) => Some(()),
        Err(wrong) => {
            let message = without_name(&wrong.to_string());
            reader.wrong(
                &quota.span,
                message.replace("plan \"override\" ", "the override "),
            );
            None
        }
    }
}
