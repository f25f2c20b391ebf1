//! What a rule's top keys and accounts are called: `label = "key"`, `durable = "key"`, `daily_usage = "key"`, or a part of it.

use std::net::{Ipv4Addr, Ipv6Addr};

use tollgate::key::{KeyBuf, PartKind};
use tollgate_core::MAX_UNITS;

use crate::{node::Value, reader::Item, rule_key::RuleKey};

/// The word for all parts.
const WHOLE: &str = "key";

/// What a key is called.
#[derive(Clone)]
pub(crate) struct KeyLabel {
    /// By part of the rule's key, how many parts of a key it makes; `None`: what the service binds makes any number.
    widths: Vec<Option<usize>>,
    /// `None`: all.
    part: Option<usize>,
    first: usize,
}

impl KeyLabel {
    pub(crate) fn read(item: Item<'_>, key: &RuleKey) -> Option<Self> {
        if !matches!(item.value(), Value::Table(_)) {
            return Self::read_name(item, key);
        }
        let fields = item.fields("a label", "label")?;
        let label = match fields.get("of") {
            Some(of) => Self::read_name(of, key)?,
            None => Self::whole(key),
        };
        let first = match fields.get("first") {
            Some(first) => first.number("a number of characters", 1, MAX_UNITS)? as usize,
            None => usize::MAX,
        };
        Some(Self { first, ..label })
    }

    /// One part of a key, or all, by its name.
    pub(crate) fn read_name(item: Item<'_>, key: &RuleKey) -> Option<Self> {
        let name = item.text("\"key\", or one of what the rule counts by")?;
        let part = key.names().position(|part| part == name);
        if part.is_none() && name != WHOLE {
            let known = [WHOLE].into_iter().chain(key.names());
            return item.unknown("part of the rule's key", name, known);
        }
        let part = part.filter(|_| name != WHOLE);
        Some(Self {
            part,
            ..Self::whole(key)
        })
    }

    /// All parts of a key.
    pub(crate) fn whole(key: &RuleKey) -> Self {
        Self {
            widths: key.widths().collect(),
            part: None,
            first: usize::MAX,
        }
    }

    /// What this key is called.
    pub(crate) fn of(&self, key: &KeyBuf) -> String {
        let parts: Vec<_> = key.parts().collect();
        if let [(PartKind::SHARED, _)] = parts[..] {
            return "without a key".to_owned();
        }
        let known: usize = self.widths.iter().flatten().sum();
        let open = self.widths.iter().filter(|width| width.is_none()).count();
        // Several that are bound make one part each, or else nobody knows whose which is.
        let width = match open {
            1 => parts.len().saturating_sub(known),
            _ => 1,
        };
        let is_known = known + open * width == parts.len();
        let (mut rest, mut texts) = (&parts[..], Vec::new());
        for (index, own) in self.widths.iter().enumerate() {
            let (of_part, behind) = rest
                .split_at_checked(own.unwrap_or(width))
                .unwrap_or_default();
            rest = behind;
            if !is_known || self.part.is_none_or(|part| part == index) {
                // Of a named value, the value.
                let shown = of_part.iter().skip(usize::from(*own == Some(2)));
                texts.extend(shown.map(|(kind, part)| text(*kind, part)));
            }
        }
        let label = texts.join(", ");
        match label.char_indices().nth(self.first) {
            Some((end, _)) => format!("{}…", &label[..end]),
            None => label,
        }
    }
}

/// A part of a key for people.
fn text(kind: PartKind, part: &[u8]) -> String {
    if kind == PartKind::ADDRESS {
        if let [4, 32, a, b, c, d] = *part {
            return Ipv4Addr::new(a, b, c, d).to_string();
        }
        if let [4, prefix, a, b, c, d] = *part {
            return format!("{}/{prefix}", Ipv4Addr::new(a, b, c, d));
        }
        if let [6, prefix, address @ ..] = part
            && let Ok(address) = <[u8; 16]>::try_from(address)
        {
            return format!("{}/{prefix}", Ipv6Addr::from(address));
        }
    }
    match std::str::from_utf8(part) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => part.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
