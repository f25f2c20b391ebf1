//! The YAML of envoyproxy/ratelimit as rules for the edge.
//!
//! There, a tree of descriptors is walked by the entries of a request, as deep as both go, and what it ends at is the limit. At each
//! level an entry takes the node with its value, or the first of those with stars that match, or the node without a value; there is
//! no way back. Here, each limit is a rule of its own with the whole way as its condition, and without the ways that come before it.

mod rules;
mod tree;

use crate::{
    bindings::Bindings,
    document_error::DocumentError,
    envoy_import::{
        rules::Rules,
        tree::{Descriptor, read_root},
    },
    format::Format,
    hidden_keys::HiddenKeys,
    problems::Problems,
    reader::Reader,
    rule_text::RuleText,
    yaml_tree,
};

/// What a configuration of envoyproxy/ratelimit says, as a document of rules in TOML for `tollgate-server`. `files` are names, for
/// errors, and texts; files of one domain are put together.
///
/// A limit is a rule with the key and the window that it had, and limits of single values are overrides. What differs is a comment
/// in the document. Keys and values are compared one by one, not joined by `_`.
///
/// ```
/// use tollgate_rules::{Bindings, Format, RuleDocument, operators::import_envoy};
///
/// let yaml = "
/// domain: sms
/// descriptors:
///   - key: kind
///     value: alert
///     descriptors:
///       - key: to
///         rate_limit: { unit: day, requests_per_unit: 5 }
/// ";
/// let text = import_envoy([("sms.yaml", yaml)])?;
/// assert!(text.contains("limit = \"fixed_window 5/d\"\nby = [\"descriptor:to\"]"), "{text}");
/// let rules = RuleDocument::parse(&text, Format::Toml, &Bindings::new().at_edge())?;
/// assert_eq!(rules.names().collect::<Vec<_>>(), ["sms:kind:alert/to"]);
/// # Ok::<(), tollgate_rules::DocumentError>(())
/// ```
///
/// # Errors
///
/// What cannot be read, and what rules cannot say, with its line.
pub fn import_envoy<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<String, DocumentError> {
    let mut domains: Vec<(String, Vec<Descriptor>)> = Vec::new();
    let (mut wrong, bindings) = (DocumentError::none(), Bindings::new());
    for (origin, text) in files {
        let problems = Problems::default();
        let root = yaml_tree::parse(text, &problems);
        let reader = Reader::new(text, Format::Yaml, &problems, &bindings);
        if problems.is_empty() {
            read_root(reader, &root, &mut domains);
        }
        // The importer of a file may read its keys.
        let keys = HiddenKeys::default();
        wrong.add(origin, text, &problems.into_sorted(), &keys);
    }
    if !wrong.mistakes().is_empty() {
        return Err(wrong);
    }
    let mut rules = Rules::new();
    for (domain, descriptors) in &domains {
        rules.add(domain, &mut Vec::new(), descriptors);
    }
    // It says what no reader could: a name that is there twice, say.
    RuleText::named("the rules made of it", &*rules.text, Format::Toml).parse(&bindings)?;
    Ok(rules.text)
}
