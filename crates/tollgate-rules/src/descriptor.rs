//! What Envoy says of a request to its rate limit service: `by = "descriptor:to"` and
//! `when = { domain = "sms", descriptor = [{ kind = "alert" }, "to"] }`.

use std::{fmt, iter, sync::Arc};

use tollgate::{Head, Key};

use crate::{
    node::{Node, Value},
    reader::Reader,
};

/// A descriptor with its domain: the words by which Envoy describes a request to its rate limit service.
///
/// `tollgate-server` puts it into the extensions of a request's head. From there rules by `descriptor:NAME` and the conditions
/// `domain` and `descriptor` take it, in documents that are read [at the edge](crate::Bindings::at_edge).
///
/// ```
/// use tollgate_rules::{Bindings, Descriptor, Format, RuleDocument};
///
/// let text = r#"
///     version = 1
///     [[rules]]
///     name = "alerts-per-number"
///     limit = "fixed_window 5/d"
///     by = "descriptor:to"
///     when = { domain = "sms", descriptor = [{ kind = "alert" }, "to"] }
/// "#;
/// let document = RuleDocument::parse(text, Format::Toml, &Bindings::new().at_edge())?;
/// let entries = [("kind", "alert"), ("to", "+441234")].map(|(key, value)| (key.to_owned(), value.to_owned()));
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// head.extensions.insert(Descriptor::new("sms", entries));
/// assert!(document.explain(&head)[0].counts());
/// # Ok::<(), tollgate_rules::DocumentError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Descriptor {
    domain: Arc<str>,
    entries: Vec<(String, String)>,
}

impl Descriptor {
    /// The entries in their order, as keys and values.
    pub fn new(
        domain: impl Into<Arc<str>>,
        entries: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        Self {
            domain: domain.into(),
            entries: entries.into_iter().collect(),
        }
    }

    /// The domain of the request.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The keys and values, in their order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, value)| (&**key, &**value))
    }

    pub(crate) fn of<'h>(head: &Head<'h>) -> Option<&'h Self> {
        head.extensions.get()
    }

    /// Whether there is an entry with this key.
    pub(crate) fn has(head: &Head<'_>, key: &str) -> bool {
        Self::of(head).is_some_and(|all| all.entries().any(|(other, _)| other == key))
    }

    /// The client that the entries with this key name: Envoy's configuration may repeat one, and all of them count. An empty value is
    /// none.
    pub(crate) fn client(head: &Head<'_>, key: &str) -> Option<Key> {
        let values = Self::of(head)?.entries().filter(|(other, _)| *other == key);
        let values: Vec<&str> = values.map(|(_, value)| value).collect();
        let is_client = !values.is_empty() && !values.contains(&"");
        is_client.then(|| iter::once(key).chain(values).collect())
    }
}

/// Without values, which may be clients.
impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor")
            .field("domain", &self.domain)
            .field(
                "keys",
                &self.entries().map(|(key, _)| key).collect::<Vec<_>>(),
            )
            .finish()
    }
}

/// Exactly these entries, in this order.
pub(crate) struct DescriptorPattern(Vec<(String, ValuePattern)>);

enum ValuePattern {
    Any,
    /// What stands around its stars, each of which is any text; without a star, the value.
    Is(Vec<String>),
}

impl ValuePattern {
    fn matches(&self, value: &str) -> bool {
        let Self::Is(parts) = self else {
            return true;
        };
        let [first, middle @ .., last] = &parts[..] else {
            return parts.first().is_some_and(|only| only == value);
        };
        let rest = value.strip_prefix(&**first);
        let rest = rest.and_then(|rest| rest.strip_suffix(&**last));
        let mut parts = middle.iter();
        rest.is_some_and(|rest| {
            let found = parts.try_fold(rest, |rest, part| Some(rest.split_once(&**part)?.1));
            found.is_some()
        })
    }
}

impl DescriptorPattern {
    /// Reads `[{ kind = "alert" }, "to"]`.
    pub(crate) fn read(reader: Reader<'_>, node: &Node) -> Option<Self> {
        let nodes = reader.list_or_one(node);
        if nodes.is_empty() {
            let message = "no descriptor is empty; name its entries, in their order";
            reader.wrong(&node.span, message);
            return None;
        }
        let entries = nodes.iter().map(|node| match &node.value {
            Value::Text(key) => Some((key.clone(), ValuePattern::Any)),
            Value::Table(fields) if fields.len() == 1 => {
                let (key, value) = &fields[0];
                let value = reader.text(value, "the value of the entry as text")?.value;
                let parts = value.split('*').map(str::to_owned);
                Some((key.text.clone(), ValuePattern::Is(parts.collect())))
            }
            _ => {
                let entry = reader.example("{ kind = \"alert\" }");
                reader.expected(
                    node,
                    &format!("the key of an entry, or with its value {entry}"),
                );
                None
            }
        });
        // All of them, so that each mistake is noted.
        let entries: Vec<_> = entries.collect();
        Some(Self(entries.into_iter().collect::<Option<_>>()?))
    }

    pub(crate) fn matches(&self, head: &Head<'_>) -> bool {
        let Some(descriptor) = Descriptor::of(head) else {
            return false;
        };
        let matches =
            |((key, pattern), (of_key, value)): (&(String, ValuePattern), (&str, &str))| {
                key == of_key && pattern.matches(value)
            };
        self.0.len() == descriptor.entries.len()
            && self.0.iter().zip(descriptor.entries()).all(matches)
    }
}

/// What a service cannot know.
pub(crate) fn for_edge(reader: Reader<'_>, what: &str) -> String {
    let at = reader.example("at = \"edge\"");
    format!(
        "{what} is what Envoy tells tollgate-server, and a service never has it; give the rule {at} where services read this document \
         too"
    )
}
