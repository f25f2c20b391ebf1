//! What Envoy says of a request to its rate limit service: `by = "descriptor:to"` and
//! `when = { domain = "sms", descriptor = [{ kind = "alert" }, "to"] }`.

use std::iter;

use http::request::Parts;
use tollgate::{Head, Key, siblings::Words};

use crate::{node::Value, reader::Item};

/// A descriptor with its domain: the words by which Envoy describes a request to its rate limit service.
///
/// `tollgate-server` [puts](Self::describe) it into a request's head. From there rules by `descriptor:NAME` and the conditions `domain`
/// and `descriptor` take it, in documents that are read [at the edge](crate::Bindings::at_edge).
///
/// ```
/// use tollgate_rules::{Bindings, Format, RuleDocument, operators::Descriptor};
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
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// Descriptor::new("sms", [("kind", "alert"), ("to", "+441234")]).describe(&mut head);
/// assert!(document.explain(&head)[0].counts());
/// # Ok::<(), tollgate_rules::DocumentError>(())
/// ```
///
/// Its `Debug` is without values, which may be clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor(Words);

impl Descriptor {
    /// The entries in their order, as keys and values.
    pub fn new<W: Into<String>>(domain: &str, entries: impl IntoIterator<Item = (W, W)>) -> Self {
        let words = entries
            .into_iter()
            .flat_map(|(key, value)| [key.into(), value.into()]);
        Self(iter::once(domain.to_owned()).chain(words).collect())
    }

    /// Lets it describe the request with this head.
    pub fn describe(self, head: &mut Parts) {
        head.extensions.insert(self.0);
    }

    /// The keys and values of the descriptor of this head, in their order.
    fn entries<'h>(head: &Head<'h>) -> impl Iterator<Item = (&'h str, &'h str)> {
        let mut words = head
            .extensions
            .get::<Words>()
            .into_iter()
            .flat_map(|words| words.iter().skip(1));
        iter::from_fn(move || Some((words.next()?, words.next()?)))
    }

    pub(crate) fn is_of(head: &Head<'_>, domain: &str) -> bool {
        let words = head.extensions.get::<Words>();
        words.is_some_and(|words| words.iter().next() == Some(domain))
    }

    /// Whether there is an entry with this key.
    pub(crate) fn has(head: &Head<'_>, key: &str) -> bool {
        Self::entries(head).any(|(other, _)| other == key)
    }

    /// The client that the entries with this key name: Envoy's configuration may repeat one, and all of them count. An empty value is
    /// none.
    pub(crate) fn client(head: &Head<'_>, key: &str) -> Option<Key> {
        let mut values = Self::entries(head)
            .filter(|(other, _)| *other == key)
            .map(|(_, value)| value)
            .peekable();
        values.peek()?;
        let mut is_client = true;
        let values = values.inspect(|value| is_client &= !value.is_empty());
        let client = iter::once(key).chain(values).collect();
        is_client.then_some(client)
    }
}

/// Exactly these entries, in this order.
pub(crate) struct DescriptorPattern(Vec<(String, Option<ValuePattern>)>);

/// What stands around the stars of a value, each of which is any text; without a star, the value.
struct ValuePattern(Vec<String>);

impl ValuePattern {
    fn matches(&self, value: &str) -> bool {
        let [first, middle @ .., last] = &self.0[..] else {
            return self.0.first().is_some_and(|only| only == value);
        };
        let rest = value
            .strip_prefix(&**first)
            .and_then(|rest| rest.strip_suffix(&**last));
        let mut parts = middle.iter();
        rest.is_some_and(|rest| {
            let found = parts.try_fold(rest, |rest, part| Some(rest.split_once(&**part)?.1));
            found.is_some()
        })
    }
}

impl DescriptorPattern {
    /// Reads `[{ kind = "alert" }, "to"]`.
    pub(crate) fn read(item: Item<'_>) -> Option<Self> {
        let items = item.list_or_one();
        if items.len() == 0 {
            return item.refuse("no descriptor is empty; name its entries, in their order");
        }
        // Without what is wrong, for which the document is refused.
        let entries = items.filter_map(|item| match item.value() {
            Value::Text(key) => Some((key.clone(), None)),
            Value::Table(fields) if fields.len() == 1 => {
                let (key, value) = &fields[0];
                let value = item.reader.item(value);
                let parts = value.text("the value of the entry as text")?.split('*');
                let pattern = ValuePattern(parts.map(str::to_owned).collect());
                Some((key.text.clone(), Some(pattern)))
            }
            _ => item.expected("the key of an entry, or with its value «{ kind = \"alert\" }»"),
        });
        Some(Self(entries.collect()))
    }

    /// The words that describe a request in this domain, or in any; `None` is any word.
    pub(crate) fn words(&self, domain: Option<String>) -> Vec<Option<String>> {
        let entries = self.0.iter().flat_map(|(key, value)| {
            let value = value.as_ref().filter(|value| value.0.len() == 1);
            [Some(key.clone()), value.map(|value| value.0[0].clone())]
        });
        iter::once(domain).chain(entries).collect()
    }

    /// Whether any value has a star.
    pub(crate) fn has_stars(&self) -> bool {
        let has_star = |value: &ValuePattern| value.0.len() > 1;
        self.0
            .iter()
            .any(|(_, value)| value.as_ref().is_some_and(has_star))
    }

    /// Whether the values of a request with these words are what it says, which the words do not say of stars.
    pub(crate) fn fits(&self, head: &Head<'_>) -> bool {
        let mut both = self.0.iter().zip(Descriptor::entries(head));
        both.all(|((_, pattern), (_, value))| pattern.as_ref().is_none_or(|it| it.matches(value)))
    }
}

/// What a service cannot know.
pub(crate) fn for_edge(what: &str) -> String {
    format!(
        "{what} is what Envoy tells tollgate-server, and a service never has it; give the rule «at = \"edge\"» where services read \
         this document too"
    )
}
