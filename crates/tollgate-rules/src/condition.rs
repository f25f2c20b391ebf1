//! When a rule of a document applies: `when = { path = "/search/{*rest}", methods = ["GET"] }`.

use std::{cmp::Ordering, sync::Arc};

use http::{HeaderName, HeaderValue, Method};
use tollgate::condition::{
    PathPattern, grpc_method_is, grpc_service_is, in_list, method_in, words_are,
};

use crate::{
    bindings::{Bindings, Predicate, Side},
    descriptor::{Descriptor, DescriptorPattern, for_edge},
    node::{Node, Value},
    reader::{At, Reader},
    rule_key::{NamedClient, RuleKey},
};

use tollgate::Head;

/// Whether it holds for a client, whatever else is in the request. `None`: that decides.
type OfClient = dyn Fn(&NamedClient<'_>) -> Option<bool> + Send + Sync;

/// What has to hold besides the path, the methods and the words.
#[derive(Clone)]
struct Other {
    holds: Arc<Predicate>,
    of_client: Arc<OfClient>,
}

/// A condition, and what is known of it.
#[derive(Clone, Default)]
pub(crate) struct Condition {
    /// The path that it names on its own.
    pub(crate) path: Option<At<PathPattern>>,
    /// One of these, unless there is none. GET includes HEAD.
    pub(crate) methods: Vec<Method>,
    /// The words that describe its requests: the domain of Envoy's filter and the entries of a descriptor; `None` is any word.
    pub(crate) words: Option<Vec<Option<String>>>,
    /// All of them hold as well.
    others: Vec<Other>,
}

impl Condition {
    pub(crate) fn read(reader: Reader<'_>, node: &Node, bindings: &Bindings) -> Self {
        let mut condition = Self::default();
        if let Value::Text(name) = &node.value {
            condition.add_bound(reader, node, name, bindings);
            return condition;
        }
        let Some(fields) = reader.fields(node, "a condition", "condition_table") else {
            return condition;
        };
        if let Some(path) = fields.get("path") {
            condition.add_path(reader, path);
        }
        if let Some(methods) = fields.get("methods") {
            condition.add_methods(reader, methods);
        }
        if let Some(header) = fields.get("header") {
            condition.add_header(reader, header);
        }
        if let Some(node) = fields.get("grpc_service")
            && let Some(service) = reader.text(node, "a service as \"weather.v1.Weather\"")
        {
            match is_grpc_name(service.value) {
                true => condition.add(grpc_service_is(service.value)),
                false => reader.wrong(
                    &service.span,
                    "this is not a service; write it with its package and without slashes, as \"weather.v1.Weather\"",
                ),
            }
        }
        if let Some(node) = fields.get("grpc_method")
            && let Some(called) = reader.text(node, "a method as \"weather.v1.Weather/Current\"")
        {
            match called.value.trim_start_matches('/').split_once('/') {
                Some((service, method)) if is_grpc_name(service) && is_grpc_name(method) => {
                    condition.add(grpc_method_is(service, method));
                }
                _ => reader.wrong(
                    &called.span,
                    "a method has its service in front, as \"weather.v1.Weather/Current\"; for all methods of a service take grpc_service",
                ),
            }
        }
        if let Some(networks) = fields.get("client_in") {
            condition.add_networks(reader, networks, bindings);
        }
        if let Some(list) = fields.get("in_list") {
            condition.add_list(reader, list, fields.get("by"), bindings);
        } else if let Some(by) = fields.get("by") {
            let message = "by is what a list is asked for; add in_list, or leave it out";
            reader.wrong(&by.span, message);
        }
        for name in fields.list("is") {
            if let Some(bound) = reader.text(name, "the name of a bound condition") {
                condition.add_bound(reader, name, bound.value, bindings);
            }
        }
        let domain = fields.read("domain", |node| {
            let domain = reader.text(node, "the domain of Envoy's filter as text")?;
            Some(domain.value.to_owned())
        });
        let pattern = fields.read("descriptor", |node| DescriptorPattern::read(reader, node));
        match (pattern, domain) {
            (Some(pattern), domain) => {
                condition.words = Some(pattern.words(domain));
                if pattern.has_stars() {
                    condition.add(move |head| pattern.fits(head));
                }
            }
            (None, Some(domain)) => condition.add(move |head| Descriptor::is_of(head, &domain)),
            (None, None) => {}
        }
        for name in ["domain", "descriptor"] {
            if let Some(node) = fields.get(name).filter(|_| reader.side == Side::Service) {
                reader.wrong(&node.span, for_edge(reader, name));
            }
        }
        let nested = |name: &str| -> Vec<Self> {
            let read = fields
                .list(name)
                .iter()
                .map(|node| Self::read(reader, node, bindings));
            read.collect()
        };
        for not in nested("not") {
            let holds = not.predicate();
            let of_client =
                move |client: &NamedClient<'_>| not.of_client(client).map(|holds| !holds);
            condition.add_with(Arc::new(move |head| !holds(head)), of_client);
        }
        for all in nested("all") {
            condition.add_with(all.predicate(), move |client| all.of_client(client));
        }
        if let Some(node) = fields.get("any") {
            let any = nested("any");
            if any.is_empty() {
                reader.wrong(
                    &node.span,
                    "any of no conditions never holds; write at least one",
                );
            }
            let each: Vec<_> = any.iter().map(Self::predicate).collect();
            let holds = Arc::new(move |head: &Head<'_>| each.iter().any(|holds| holds(head)));
            condition.add_with(holds, move |client| {
                let fails = |one: &Self| one.of_client(client).map(|holds| !holds);
                all_of(any.iter().map(fails)).map(|none_holds| !none_holds)
            });
        }
        condition
    }

    fn add(&mut self, holds: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) {
        self.add_with(Arc::new(holds), |_| None);
    }

    /// The same, with what is known of a client alone.
    pub(crate) fn add_with(
        &mut self,
        holds: Arc<Predicate>,
        of_client: impl Fn(&NamedClient<'_>) -> Option<bool> + Send + Sync + 'static,
    ) {
        let of_client = Arc::new(of_client);
        self.others.push(Other { holds, of_client });
    }

    fn add_bound(&mut self, reader: Reader<'_>, node: &Node, name: &str, bindings: &Bindings) {
        if name.contains('/') && !bindings.conditions.contains_key(name) {
            let route = reader.example(r#"methods = ["POST"], path = "/login""#);
            let message =
                format!("this is no name of a bound condition; write a route as {{ {route} }}");
            return reader.wrong(&node.span, message);
        }
        let bound = reader.bound(node, "bound condition", name, &bindings.conditions);
        if let Some(bound) = bound {
            self.add_with(bound, |_| None);
        }
    }

    fn add_path(&mut self, reader: Reader<'_>, node: &Node) {
        let Some(text) = reader.text(node, "a path as \"/search/{*rest}\"") else {
            return;
        };
        match PathPattern::new(text.value) {
            Ok(value) => {
                let span = text.span;
                self.path = Some(At { span, value });
            }
            Err(wrong) => reader.wrong(&text.span, wrong.to_string()),
        }
    }

    fn add_methods(&mut self, reader: Reader<'_>, node: &Node) {
        let mut methods = Vec::new();
        let named = reader.list_or_one(node);
        if named.is_empty() {
            let message = "without a method the rule would apply to no request; name one, or leave methods out";
            reader.wrong(&node.span, message);
        }
        for node in named {
            let Some(text) = reader.text(node, "a method as \"GET\"") else {
                continue;
            };
            let upper = text.value.trim().to_ascii_uppercase();
            let message = match Method::from_bytes(text.value.as_bytes()) {
                _ if ["*", "ANY", "ALL"].contains(&&*upper) => format!(
                    "{:?} is not a method; for all methods leave methods out",
                    text.value
                ),
                Ok(method) if text.value == upper => {
                    methods.push(method);
                    continue;
                }
                _ if Method::from_bytes(upper.as_bytes()).is_err() => {
                    format!("{:?} is not a method; write one as \"GET\"", text.value)
                }
                _ => format!("{:?} is not a method; did you mean {upper:?}?", text.value),
            };
            reader.wrong(&text.span, message);
        }
        self.methods = methods;
    }

    fn add_header(&mut self, reader: Reader<'_>, node: &Node) {
        let Some((header, equals)) = read_header(reader, node, "x-beta") else {
            return;
        };
        let Some(equals) = equals else {
            return self.add(move |head| head.headers.contains_key(&header));
        };
        match HeaderValue::from_str(equals.value) {
            Ok(value) => {
                self.add(move |head| head.headers.get_all(&header).iter().any(|v| v == value));
            }
            Err(_) => reader.wrong(&equals.span, "this cannot be the value of a header"),
        }
    }

    fn add_networks(&mut self, reader: Reader<'_>, node: &Node, bindings: &Bindings) {
        let mut networks = Vec::new();
        for node in reader.list_or_one(node) {
            let Some(text) = reader.text(node, "a network as \"10.0.0.0/8\"") else {
                continue;
            };
            match bindings.client_address().is_in([text.value]) {
                Ok(_) => networks.push(text.value.to_owned()),
                Err(wrong) => reader.wrong(&text.span, wrong.to_string()),
            }
        }
        match bindings.client_address().is_in(networks) {
            Ok(is_in) => self.add(is_in),
            // What is wrong with the networks is known already.
            Err(wrong) if reader.problems.is_empty() => reader.wrong(&node.span, wrong.to_string()),
            Err(_) => {}
        }
    }

    fn add_list(
        &mut self,
        reader: Reader<'_>,
        node: &Node,
        by: Option<&Node>,
        bindings: &Bindings,
    ) {
        let name = reader.text(node, "the name of a bound list");
        let list = name.and_then(|name| {
            if !bindings.lists.is_empty() {
                return reader.bound(node, "bound list", name.value, &bindings.lists);
            }
            let file = reader.example(r#"lists = { NAME = { file = "NAME.txt" } }"#);
            let file = match bindings.is_push {
                true => String::new(),
                false => format!(
                    "name its file at the top, {}, or ",
                    file.replace("NAME", name.value)
                ),
            };
            let message = format!(
                "unknown bound list {:?}; there is none: {file}bind it in code by Bindings::list",
                name.value
            );
            reader.wrong(&node.span, message);
            None
        });
        let Some(by) = by else {
            let right = reader.example("by = \"client_ip\"");
            let message = format!("the key to look up in the list is missing; add {right}");
            return reader.wrong(&node.span, message);
        };
        let key = RuleKey::read(reader, by, bindings, None);
        if key
            .as_ref()
            .is_some_and(|key| key.is_of_handler() || key.names().count() > 1)
        {
            let message = "a list has keys of one part, which are in the head of the request; write by = \"client_ip\" or \"header:x-api-key\"";
            return reader.wrong(&by.span, message);
        }
        if let (Some(list), Some(key)) = (list, key) {
            let holds = Arc::new(in_list(key.extractor(), &list));
            self.add_with(holds, move |client| key.is_listed(&list, client));
        }
    }

    /// Whether it holds for a request.
    pub(crate) fn predicate(&self) -> Arc<Predicate> {
        let path = self.path.as_ref().map(|path| path.value.clone());
        let methods = (!self.methods.is_empty()).then(|| method_in(self.methods.clone()));
        let words = self.words.clone().map(words_are);
        let others = self.others.clone();
        Arc::new(move |head| {
            path.as_ref().is_none_or(|path| path.matches(head))
                && methods.as_ref().is_none_or(|holds| holds(head))
                && words.as_ref().is_none_or(|holds| holds(head))
                && others.iter().all(|other| (other.holds)(head))
        })
    }

    /// Whether it holds for a client, whatever else is in the request. `None`: that decides.
    pub(crate) fn of_client(&self, client: &NamedClient<'_>) -> Option<bool> {
        let is_of_head = self.path.is_some() || !self.methods.is_empty() || self.words.is_some();
        let others = self.others.iter().map(|other| (other.of_client)(client));
        all_of(others.chain(is_of_head.then_some(None)))
    }

    /// What has to hold besides its path, methods and words, if anything.
    pub(crate) fn others(&self) -> Option<Arc<Predicate>> {
        match &self.others[..] {
            [] => None,
            [only] => Some(Arc::clone(&only.holds)),
            others => {
                let others = others.to_vec();
                Some(Arc::new(move |head| {
                    others.iter().all(|other| (other.holds)(head))
                }))
            }
        }
    }

    /// This condition and another one.
    pub(crate) fn and(&self, holds: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        let mut both = self.clone();
        both.add(holds);
        both
    }

    /// Which of two conditions is more specific; the greater one is: by the path, then by whether it names methods, then by whether it
    /// names HEAD, which others have with GET. Without a path it is the least.
    pub(crate) fn cmp_specificity(&self, other: &Self) -> Ordering {
        let paths = match (&self.path, &other.path) {
            (Some(one), Some(other)) => one.value.cmp_specificity(&other.value),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        paths
            .then_with(|| {
                self.methods
                    .is_empty()
                    .cmp(&other.methods.is_empty())
                    .reverse()
            })
            .then_with(|| {
                let names_head = |one: &Self| one.methods.contains(&Method::HEAD);
                names_head(self).cmp(&names_head(other))
            })
    }
}

/// Whether all hold. What is not known does not matter next to one that fails.
fn all_of(each: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut all = Some(true);
    for one in each {
        match one {
            Some(true) => {}
            Some(false) => return Some(false),
            None => all = None,
        }
    }
    all
}

/// Whether it is the name of a gRPC service or method.
fn is_grpc_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    !text.is_empty() && text.chars().all(is_letter)
}

/// A header, and the value that it is compared with, if it is. `example` is a name.
pub(crate) fn read_header<'a>(
    reader: Reader<'a>,
    node: &'a Node,
    example: &str,
) -> Option<(HeaderName, Option<At<&'a str>>)> {
    if !matches!(node.value, Value::Table(_)) {
        return Some((reader.header_name(node, example)?, None));
    }
    let fields = reader.fields(node, "a header", "header")?;
    let name = fields.required("name", &format!("{example:?}"));
    let name = name.and_then(|name| reader.header_name(name, example));
    let Some(equals) = fields.get("equals") else {
        return Some((name?, None));
    };
    let text = reader.text(equals, "the value of the header as text")?;
    let trimmed = text.value.trim();
    if trimmed != text.value {
        let message =
            format!("values of headers have no spaces around them; did you mean {trimmed:?}?");
        reader.wrong(&text.span, message);
        return None;
    }
    Some((name?, Some(text)))
}
