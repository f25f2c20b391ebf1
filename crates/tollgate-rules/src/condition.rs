//! When a rule of a document applies: `when = { path = "/search/{*rest}", methods = ["GET"] }`.

use std::{cmp::Ordering, sync::Arc};

use http::{HeaderName, HeaderValue, Method, header};
use tollgate::{
    Head, RequestRule,
    condition::method_in,
    key::NoKey,
    siblings::{
        KnownCondition, PathPattern, STANDARD_METHODS, host_of, only_line, path_matches, words_are,
    },
};
use tollgate_core::store::did_you_mean;

use crate::{
    bindings::Side,
    descriptor::{Descriptor, DescriptorPattern, for_edge},
    node::Value,
    reader::Item,
    rule_key::{NamedClient, RuleKey},
};

/// What a condition is asked about: a request, or a client, whatever else is in its requests.
pub(crate) enum Subject<'a> {
    Request(&'a Head<'a>),
    Client(&'a NamedClient<'a>),
}

/// Whether it holds. `None`: of the client alone it is not known, nor of a request that sends the key of a list more than once.
type Holds = dyn Fn(&Subject<'_>) -> Option<bool> + Send + Sync;

/// A condition, and what is known of it.
#[derive(Clone, Default)]
pub(crate) struct Condition {
    /// The path that it names on its own.
    pub(crate) path: Option<PathPattern>,
    /// One of these, unless there is none. GET includes HEAD.
    pub(crate) methods: Vec<Method>,
    /// What only a request says, the path and the methods included. Of paths and words the index of a layer knows.
    of_requests: Vec<KnownCondition>,
    /// What may be known of a client as well.
    others: Vec<Arc<Holds>>,
}

impl Condition {
    pub(crate) fn read(item: Item<'_>) -> Self {
        let mut condition = Self::default();
        if let Value::Text(_) = item.value() {
            condition.add_bound(item);
            return condition;
        }
        let Some(fields) = item.fields("a condition", "condition_table") else {
            return condition;
        };
        condition.path = fields.read("path", |path| {
            path.or_refuse(PathPattern::new(
                path.text("a path as \"/search/{*rest}\"")?,
            ))
        });
        if let Some(path) = condition.path.clone() {
            condition.add(path_matches(path));
        }
        if let Some(methods) = fields.get("methods") {
            condition.methods = read_methods(methods);
            condition.add(method_in(condition.methods.clone()));
        }
        if let Some((name, equals)) = fields.read("header", |header| read_header(header, "x-beta"))
        {
            if name == header::HOST {
                condition.add_host(equals.map(|it| host_of(it.as_bytes())));
            } else {
                condition.add(move |head| {
                    let mut values = head.headers.get_all(&name).iter();
                    values.any(|value| equals.as_ref().is_none_or(|equals| equals == value))
                });
            }
        }
        if let Some(service) = fields.text("grpc_service", "a service as \"weather.v1.Weather\"") {
            match is_grpc_name(service) {
                true => {
                    let path = format!("/{service}/");
                    condition.add(move |head| head.uri.path().starts_with(&path));
                }
                false => fields.wrong(
                    "grpc_service",
                    "this is not a service; write it with its package and without slashes, as \"weather.v1.Weather\"",
                ),
            }
        }
        let example = "a method as \"weather.v1.Weather/Current\"";
        if let Some(called) = fields.text("grpc_method", example) {
            match called.trim_start_matches('/').split_once('/') {
                Some((service, method)) if is_grpc_name(service) && is_grpc_name(method) => {
                    let path = format!("/{service}/{method}");
                    condition.add(move |head| head.uri.path() == path);
                }
                _ => fields.wrong(
                    "grpc_method",
                    "a method has its service in front, as \"weather.v1.Weather/Current\"; for all methods of a service take grpc_service",
                ),
            }
        }
        let is_in = fields.read("client_in", |networks| {
            let named = networks.list_or_one();
            let all = named.map(|network| network.text("a network as \"10.0.0.0/8\""));
            let client = networks.reader.bindings.client_address();
            networks.or_refuse(client.is_in(all.collect::<Option<Vec<_>>>()?))
        });
        if let Some(is_in) = is_in {
            condition.add(is_in);
        }
        if let Some(list) = fields.get("in_list") {
            condition.add_list(list, fields.get("by"));
        } else {
            let message = "by is what a list is asked for; add in_list, or leave it out";
            fields.wrong("by", message);
        }
        if item.node.fields().is_empty() {
            item.wrong("this holds for all requests; write for which, such as «{ path = \"/healthz\" }», or leave it out");
        }
        for name in fields.some_of("is") {
            condition.add_bound(name);
        }
        let domain = fields
            .text("domain", "the domain of Envoy's filter as text")
            .map(str::to_owned);
        if let Some(pattern) = fields.read("descriptor", DescriptorPattern::read) {
            condition.add(words_are(pattern.words(domain)));
            if pattern.has_stars() {
                condition.add(move |head| pattern.fits(head));
            }
        } else if let Some(domain) = domain {
            condition.add(move |head| Descriptor::is_of(head, &domain));
        }
        if item.reader.side == Side::Service {
            for name in ["domain", "descriptor"] {
                fields.wrong(name, for_edge(name));
            }
        }
        for not in fields.some_of("not").map(Self::read) {
            condition.add_with(move |subject| not.holds(subject).map(|holds| !holds));
        }
        for all in fields.some_of("all").map(Self::read) {
            condition.add_with(move |subject| all.holds(subject));
        }
        let any: Vec<Self> = fields.some_of("any").map(Self::read).collect();
        if !any.is_empty() {
            condition.add_with(move |subject| {
                let fails = |one: &Self| one.holds(subject).map(|holds| !holds);
                all_of(any.iter().map(fails)).map(|none_holds| !none_holds)
            });
        }
        condition
    }

    fn add(&mut self, holds: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) {
        self.of_requests.push(KnownCondition::of(holds));
    }

    /// The same, with what is known of a client alone.
    pub(crate) fn add_with(
        &mut self,
        holds: impl Fn(&Subject<'_>) -> Option<bool> + Send + Sync + 'static,
    ) {
        self.others.push(Arc::new(holds));
    }

    /// Of a request that is to two hosts it is not known.
    fn add_host(&mut self, equals: Option<Vec<u8>>) {
        self.add_with(move |subject| match subject {
            Subject::Request(head) => match only_line(head, &header::HOST) {
                Ok(host) => Some(equals.as_ref().is_none_or(|equals| *equals == *host)),
                Err(why) => (why == NoKey::Absent).then_some(false),
            },
            Subject::Client(_) => None,
        });
    }

    fn add_bound(&mut self, item: Item<'_>) {
        let known = &item.reader.bindings.conditions;
        if let Value::Text(name) = item.value()
            && name.contains('/')
            && !known.contains_key(name)
        {
            item.wrong(r#"this is no name of a bound condition; write a route as { «methods = ["POST"], path = "/login"» }"#);
        } else if let Some(bound) = item.bound("bound condition", known) {
            self.add(move |head| bound(head));
        }
    }

    fn add_list(&mut self, item: Item<'_>, by: Option<Item<'_>>) {
        let bindings = item.reader.bindings;
        let list = match item.value() {
            Value::Text(name) if bindings.lists.is_empty() => {
                let file = match bindings.is_push {
                    true => String::new(),
                    false => format!(
                        "name its file at the top, «lists = {{ {name} = {{ file = \"{name}.txt\" }} }}», or "
                    ),
                };
                item.refuse(format!(
                    "unknown bound list {name:?}; there is none: {file}bind it in code by Bindings::list"
                ))
            }
            _ => item.bound("bound list", &bindings.lists),
        };
        let Some(by) = by else {
            return item
                .wrong("the key to look up in the list is missing; add «by = \"client_ip\"»");
        };
        let key = RuleKey::read(by, None);
        let is_in_head = |key: &RuleKey| !key.is_of_handler() && key.names().count() == 1;
        if key.as_ref().is_some_and(|key| !is_in_head(key)) {
            return by.wrong("a list has keys of one part, which are in the head of the request; write by = \"client_ip\" or \"header:x-api-key\"");
        }
        if let (Some(list), Some(key)) = (list, key) {
            let by = key.extractor();
            self.add_with(move |subject| match subject {
                Subject::Request(head) => list.has(&by, head),
                Subject::Client(client) => key.is_listed(&list, client),
            });
        }
    }

    /// Lets a rule apply where it holds, and where that is not known: a key that is sent twice gets past no deny list.
    pub(crate) fn select(&self, mut rule: RequestRule) -> RequestRule {
        for holds in self.of_requests.clone() {
            rule = rule.when(holds.into_fn());
        }
        for holds in self.others.clone() {
            rule = rule.when(move |head| holds(&Subject::Request(head)) != Some(false));
        }
        rule
    }

    /// Whether it certainly holds for a request.
    pub(crate) fn predicate(&self) -> impl Fn(&Head<'_>) -> bool + Send + Sync + 'static {
        let condition = self.clone();
        move |head| condition.holds(&Subject::Request(head)) == Some(true)
    }

    /// Whether it holds, if that is known.
    pub(crate) fn holds(&self, subject: &Subject<'_>) -> Option<bool> {
        let of_request = self.of_requests.iter().map(|condition| match subject {
            Subject::Request(head) => Some(condition.holds(head)),
            Subject::Client(_) => None,
        });
        all_of(of_request.chain(self.others.iter().map(|holds| holds(subject))))
    }

    /// Which of two conditions is more specific; the greater one is: by the path, then by whether it names methods, then by whether it
    /// names HEAD, which others have with GET. Without a path it is the least.
    pub(crate) fn cmp_specificity(&self, other: &Self) -> Ordering {
        let paths = match (&self.path, &other.path) {
            (Some(one), Some(other)) => one.cmp_specificity(other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        let methods = |it: &Self| (!it.methods.is_empty(), it.methods.contains(&Method::HEAD));
        paths.then_with(|| methods(self).cmp(&methods(other)))
    }

    /// Whether one request may match both, and neither is more specific.
    pub(crate) fn is_tied(&self, other: &Self) -> bool {
        let shares_method = match (&self.methods[..], &other.methods[..]) {
            ([], []) => true,
            ([], _) | (_, []) => false,
            (one, other) => one.iter().any(|method| other.contains(method)),
        };
        let shares_paths = match (&self.path, &other.path) {
            (Some(one), Some(other)) => one.matches_same_paths(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        shares_paths && shares_method
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
    // Clients resolve dots alone before they send a path.
    text.chars().all(is_letter) && text.chars().any(|c| c != '.')
}

fn read_methods(item: Item<'_>) -> Vec<Method> {
    let named = item.list_or_one();
    if named.len() == 0 {
        item.wrong(
            "without a method the rule would apply to no request; name one, or leave methods out",
        );
    }
    let methods = named.filter_map(|item| {
        let text = item.text("a method as \"GET\"")?;
        let meant = did_you_mean(text, STANDARD_METHODS).filter(|meant| *meant != text);
        if let Some(meant) = meant {
            let message = format!("{text:?} is no method of HTTP; did you mean {meant:?}?");
            item.reader.problems.warn(message);
        }
        let is_method = !["*", "ANY", "ALL"].contains(&text) && text == text.to_ascii_uppercase();
        let method = Method::from_bytes(text.as_bytes()).ok().filter(|_| is_method);
        item.or_refuse(method.ok_or_else(|| format!(
            "{text:?} is not a method; write one in upper case, as \"GET\", or for all methods leave methods out"
        )))
    });
    methods.collect()
}

/// A header, and the value that it is compared with, if it is. `example` is a name.
pub(crate) fn read_header(
    item: Item<'_>,
    example: &str,
) -> Option<(HeaderName, Option<HeaderValue>)> {
    if !matches!(item.value(), Value::Table(_)) {
        return Some((item.header_name(example)?, None));
    }
    let fields = item.fields("a header", "header")?;
    let name = fields.header("name", example);
    let Some(equals) = fields.get("equals") else {
        return Some((name?, None));
    };
    let text = equals.text("the value of the header as text")?;
    let trimmed = text.trim();
    if trimmed != text {
        return equals.refuse(format!(
            "values of headers have no spaces around them; did you mean {trimmed:?}?"
        ));
    }
    let read = HeaderValue::from_str(text).map_err(|_| "this cannot be the value of a header");
    let value = equals.or_refuse(read)?;
    Some((name?, Some(value)))
}
