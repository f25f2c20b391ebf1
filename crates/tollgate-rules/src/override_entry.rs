//! A client's own limit, by its key.

use tollgate::Key;
use tollgate_core::{Quota, RuleSet, Tick};

use crate::{
    limit::limit,
    node::Node,
    reader::{At, Reader},
    rule_entry::{RuleEntry, without_name},
};

/// A client's own limit.
#[derive(Clone)]
pub(crate) struct Override {
    pub(crate) rule: usize,
    pub(crate) key: Key,
    pub(crate) quota: Quota,
    pub(crate) until: Tick,
}

impl Override {
    /// Reads an override of a rule that `named` finds, with its index.
    pub(crate) fn read<'r>(
        reader: Reader<'_>,
        node: &Node,
        named: impl FnOnce(&Node) -> Option<(usize, &'r RuleEntry)>,
    ) -> Option<Self> {
        let known = ["rule", "key", "limit", "until", "reason"];
        let fields = reader.fields(node, "an override", &known)?;
        let rule = fields.required(reader, "an override", "rule", "\"search-per-key\"");
        let rule = rule.and_then(named);
        let until = reader.until(&fields);
        let key = fields.required(reader, "an override", "key", "\"acme-key-1\"");
        let quota = fields.required(reader, "an override", "limit", "\"500/s\"");
        let (rule, entry) = rule?;
        let key = key.and_then(|node| entry.key.of_text(reader, node, &entry.name.value));
        let quota = quota.and_then(|node| limit(reader, node, Some(&entry.limit.value)));
        let (key, quota, until) = (key?, quota?, until?);
        refuse_override(reader, entry, &quota)?;
        Some(Self {
            rule,
            key,
            quota: quota.value,
            until,
        })
    }
}

/// An override is a plan: it shares the state with the rule's other quotas.
fn refuse_override(reader: Reader<'_>, rule: &RuleEntry, quota: &At<Quota>) -> Option<()> {
    let own = &rule.limit.value;
    if quota.value.reads_state_of(own) {
        return Some(());
    }
    let with_plan = rule.numbers(&|quota| quota).plan("override", quota.value);
    match RuleSet::new([with_plan]) {
        Ok(_) => Some(()),
        Err(wrong) => {
            let message = without_name(&wrong.to_string());
            let message = message.replace("plan \"override\" ", "the override ");
            reader.wrong(&quota.span, message);
            None
        }
    }
}
