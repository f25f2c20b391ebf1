//! What a rule of a document counts by: `by = "header:x-api-key"`.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderName, HeaderValue, Method, header::COOKIE, request::Parts};
use tollgate::{
    Head, Key,
    condition::in_list,
    key::{
        Extracted, KeyBuf, KeyExtractor, PeerAddr, authorization, computed, constant, cookie,
        grpc_method, grpc_service, header, method, path, query,
    },
    key_list::KeyList,
    siblings::{PathPattern, path_parameter_key},
};

use tollgate_core::store::did_you_mean;

use crate::{
    bindings::{ParseKey, Side},
    descriptor::{Descriptor, for_edge},
    reader::Item,
};

/// The built-in names. Those with a colon take what follows it.
const BUILT_IN: &[&str] = &[
    "client_ip",
    "authorization",
    "header:",
    "cookie:",
    "query:",
    "path:",
    "path",
    "method",
    "grpc_service",
    "grpc_method",
    "constant",
    "descriptor:",
    HANDLER,
    #[cfg(feature = "axum")]
    "route",
];

/// The key that a handler supplies.
pub(crate) const HANDLER: &str = "handler";

/// A client by text: by the names of what a rule counts by, what it has there.
pub(crate) type NamedClient<'a> = [(&'a str, &'a str)];

/// What a rule counts by: one key, or a tuple of several.
#[derive(Clone)]
pub(crate) struct RuleKey {
    parts: Vec<Part>,
}

/// A part of a key, with its text form.
#[derive(Clone)]
struct Part {
    /// As it is written.
    name: String,
    /// What it is by itself, up to a colon; empty for what the service binds.
    kind: &'static str,
    extractor: Arc<dyn KeyExtractor>,
    /// How a text becomes a key by code. Otherwise by a request that carries it.
    parse: Option<Arc<ParseKey>>,
}

impl RuleKey {
    /// Reads `by`. `pattern` is the path of the rule's condition, whose parameters may be named.
    pub(crate) fn read(item: Item<'_>, pattern: Option<&PathPattern>) -> Option<Self> {
        let mut items = item.list_or_one();
        if !(1..=6).contains(&items.len()) {
            return item.refuse("a key has 1 to 6 parts; write it as \"client_ip\" or [\"header:x-tenant\", \"method\"]");
        }
        // All of them, so that each mistake is noted.
        let parts: Vec<_> = items
            .clone()
            .map(|item| Part::read(item, pattern))
            .collect();
        let parts = parts.into_iter().collect::<Option<Vec<Part>>>()?;
        let handler = parts.iter().position(|part| part.kind == HANDLER);
        if let Some(handler) = handler.filter(|_| parts.len() > 1) {
            return items
                .nth(handler)?
                .refuse("a handler supplies the whole key; write \"handler\" alone, or remove it");
        }
        Some(Self { parts })
    }

    /// Whether a handler supplies it, and not the layer.
    pub(crate) fn is_of_handler(&self) -> bool {
        self.parts.iter().any(|part| part.kind == HANDLER)
    }

    /// The entries of a descriptor that it names.
    pub(crate) fn of_descriptor(&self) -> Vec<String> {
        let named = self
            .parts
            .iter()
            .filter(|part| part.kind == "descriptor")
            .filter_map(|part| part.name.split_once(':'));
        named.map(|(_, name)| name.to_owned()).collect()
    }

    /// Which of its parts no proxy can supply.
    pub(crate) fn of_service(&self) -> Option<&str> {
        let mut parts = self.parts.iter();
        let part = parts.find(|part| [HANDLER, "route"].contains(&part.kind))?;
        Some(&part.name)
    }

    /// By part, how many parts of a key it makes. `None`: any number.
    pub(crate) fn widths(&self) -> impl Iterator<Item = Option<usize>> {
        self.parts.iter().map(|part| match part.kind {
            "" | HANDLER => None,
            "authorization" | "header" | "cookie" | "query" | "path:" | "descriptor" => Some(2),
            _ => Some(1),
        })
    }

    /// What is right in what it counts by, and probably not meant.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.parts.iter().filter_map(|part| {
            let name = part.name.split_once(':').filter(|_| part.kind == "header")?.1;
            let remedies = [
                ("authorization", "write \"authorization\", or "),
                ("proxy-authorization", ""),
            ];
            let of_name = |(known, _): &(&str, &str)| known.eq_ignore_ascii_case(name.trim());
            remedies.into_iter().find(of_name).map(|(_, remedy)| {
                format!(
                    "{:?} counts each spelling of one credential apart: \"Bearer s\", \"bearer s\" and \"Bearer  s\" are three \
                     clients (RFC 9110 §11.1); {remedy}count by what the log-in has verified, by a name that the service binds",
                    part.name
                )
            })
        })
    }

    pub(crate) fn extractor(&self) -> Arc<dyn KeyExtractor> {
        let part = |index: usize| Arc::clone(&self.parts[index].extractor);
        match self.parts.len() {
            1 => part(0),
            2 => Arc::new((part(0), part(1))),
            3 => Arc::new((part(0), part(1), part(2))),
            4 => Arc::new((part(0), part(1), part(2), part(3))),
            5 => Arc::new((part(0), part(1), part(2), part(3), part(4))),
            // There are at most six.
            _ => Arc::new((part(0), part(1), part(2), part(3), part(4), part(5))),
        }
    }

    /// The names of its parts, as they are written.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| &*part.name)
    }

    /// What it counts by, for messages and to be compared.
    pub(crate) fn form(&self) -> String {
        self.names().collect::<Vec<_>>().join(", ")
    }

    /// The names of the parts that have a text, in the order of the texts.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        let named = self.parts.iter().filter(|part| part.is_named());
        named.map(|part| &*part.name)
    }

    /// Whether a list that is asked for this key of one part has a client. `None`: the client's texts do not say.
    pub(crate) fn is_listed(&self, list: &KeyList, client: &NamedClient<'_>) -> Option<bool> {
        let part = self.parts.first()?;
        let is_same = |name: &str| match part.kind {
            "header" => name.eq_ignore_ascii_case(&part.name),
            _ => *name == *part.name,
        };
        let (_, text) = client.iter().find(|(name, _)| is_same(name))?;
        if let Some(parse) = &part.parse {
            return Some(list.has_key(parse(text)?.as_ref()));
        }
        // The list sees an address as a whole, and a key only its network.
        let has = in_list(Arc::clone(&part.extractor), list);
        Some(has(&Head::from(&part.request(text)?)))
    }

    /// The key of a client that is named by text: one for each part, without those of constants.
    pub(crate) fn of_text(&self, item: Item<'_>, rule: &str) -> Option<Key> {
        let named: Vec<&str> = self.named().collect();
        let mut texts = item.list_or_one();
        let has_none = |it: &&Part| it.parse.is_none() && ["", "route"].contains(&it.kind);
        if let Some(part) = self.parts.iter().find(has_none) {
            return item.refuse(format!(
                "rule {rule:?} counts by {:?}, whose keys have no text form; bind it with Bindings::key_with_text",
                part.name
            ));
        }
        if named.len() != texts.len() || named.is_empty() {
            let by = named.join(", ");
            return item.refuse(match named.len() {
                0 => format!(
                    "rule {rule:?} counts all requests together, and has no keys to override"
                ),
                1 => format!("rule {rule:?} counts by {by}: write one text"),
                _ => format!(
                    "rule {rule:?} counts by {by}: write a text for each: a list, or on a command line tabs between them"
                ),
            });
        }
        let mut key = KeyBuf::new();
        for part in &self.parts {
            let mut own = KeyBuf::new();
            if !part.is_named() {
                part.key_of("", &mut own)?;
            } else {
                let item = texts.next()?;
                let text = item.text("the key as text")?;
                if text == "*" {
                    return item.refuse(
                        "a star is no key, and an override is for one client; write one for each, give the rule fewer \
                         parts, or change its limit",
                    );
                }
                // The text is not shown: it is a client's.
                if part.key_of(text, &mut own).is_none() {
                    let example = part.example();
                    return item.refuse(format!("this is not a key of {}; {example}", part.name));
                }
            }
            key.append(&own);
        }
        Some(key.into())
    }
}

impl Part {
    fn read(item: Item<'_>, pattern: Option<&PathPattern>) -> Option<Self> {
        let written = item.text("what to count by as \"client_ip\" or \"header:x-api-key\"")?;
        let (kind, name) = match written.split_once(':') {
            Some((kind, name)) => (kind, Some(name)),
            None => (written, None),
        };
        let bindings = item.reader.bindings;
        if let Some(bound) = bindings.keys.get(written) {
            return Some(Self {
                name: written.to_owned(),
                kind: "",
                extractor: Arc::clone(&bound.extractor),
                parse: bound.parse.clone(),
            });
        }
        let needs_name = ["header", "cookie", "query", "descriptor"].contains(&kind);
        if needs_name && name.is_none_or(|name| name.trim().is_empty()) {
            return item.refuse(format!(
                "{kind:?} has no name; write it as \"{kind}:x-api-key\""
            ));
        }
        if kind == "descriptor" && item.reader.side == Side::Service {
            return item.refuse(for_edge(&format!("{written:?}")));
        }
        let extractor: Arc<dyn KeyExtractor> = match (kind, name) {
            ("client_ip", None) => Arc::new(bindings.client_address()),
            ("authorization", None) => Arc::new(authorization()),
            ("header", Some(name)) => Arc::new(header(name)),
            ("cookie", Some(name)) => Arc::new(cookie(name)),
            ("query", Some(name)) => Arc::new(query(name)),
            ("path", None) => Arc::new(path()),
            ("path", Some(name)) => return Self::of_parameter(item, written, name, pattern),
            ("method", None) => Arc::new(method()),
            ("grpc_service", None) => Arc::new(grpc_service()),
            ("grpc_method", None) => Arc::new(grpc_method()),
            ("constant", None) => Arc::new(constant("all")),
            ("descriptor", Some(name)) => {
                let key = name.to_owned();
                Arc::new(computed(move |head| Descriptor::client(head, &key)))
            }
            (HANDLER, None) => Arc::new(constant(HANDLER)),
            #[cfg(feature = "axum")]
            ("route", None) => Arc::new(tollgate::key::matched_path()),
            (_, Some(_)) if BUILT_IN.contains(&kind) => {
                let behind = kind.len()..written.len();
                return item.refuse_part(behind, format!("{kind:?} takes no name; remove it"));
            }
            _ => {
                let bound = bindings.keys.keys().map(String::as_str);
                let known: Vec<&str> = BUILT_IN.iter().copied().chain(bound).collect();
                let is_misspelt = did_you_mean(written, known.iter().copied()).is_some();
                let is_header = written.contains('-') && HeaderName::try_from(written).is_ok();
                let meant = match written {
                    "ip" | "addr" | "address" | "remote_addr" => "client_ip".to_owned(),
                    "host" => "header:host".to_owned(),
                    _ if is_misspelt || !is_header => return item.unknown("key", written, known),
                    _ => format!("header:{written}"),
                };
                return item.refuse(format!("unknown key {written:?}; did you mean {meant:?}?"));
            }
        };
        if let Err(wrong) = extractor.validate() {
            let start = written.len() - name.map_or(written.len(), str::len);
            return item.refuse_part(start..written.len(), wrong);
        }
        let mut built_in = BUILT_IN.iter().map(|known| known.trim_end_matches(':'));
        Some(Self {
            name: written.to_owned(),
            kind: built_in.find(|known| *known == kind).unwrap_or_default(),
            extractor,
            // A handler mostly has one text, and makes this key of it.
            parse: (kind == HANDLER)
                .then(|| -> Arc<ParseKey> { Arc::new(|text| Some(Key::of(text))) }),
        })
    }

    /// A parameter of the path in the rule's condition.
    fn of_parameter(
        item: Item<'_>,
        written: &str,
        name: &str,
        pattern: Option<&PathPattern>,
    ) -> Option<Self> {
        let Some(pattern) = pattern else {
            return item.refuse(format!(
                "{written:?} is a parameter of the rule's path, and it has none; add «when = {{ path = \"/users/{{{name}}}\" }}»"
            ));
        };
        if !pattern.parameters().any(|parameter| parameter == name) {
            return item.unknown("parameter of the path", name, pattern.parameters());
        }
        let is_catch_all = pattern.as_str().contains(&format!("{{*{name}}}"));
        let (pattern, parameter, of_text) = (pattern.clone(), name.to_owned(), name.to_owned());
        let extractor = computed(move |head| {
            let value = pattern.parameter(head, &parameter)?;
            Some(path_parameter_key(&parameter, &value))
        });
        Some(Self {
            name: written.to_owned(),
            kind: "path:",
            extractor: Arc::new(extractor),
            parse: Some(Arc::new(move |text| {
                let is_segment = is_catch_all || !text.contains('/');
                let is_value = !text.is_empty() && !text.contains(['?', '#', '{', '}', '*']);
                (is_segment && is_value).then(|| path_parameter_key(&of_text, text))
            })),
        })
    }

    /// Whether it is of some keys: that of all needs no text.
    fn is_named(&self) -> bool {
        self.kind != "constant"
    }

    fn key_of(&self, text: &str, key: &mut KeyBuf) -> Option<()> {
        if let Some(parse) = &self.parse {
            key.append(parse(text)?.as_ref());
            return Some(());
        }
        let head = self.request(text)?;
        let extracted = self.extractor.extract(&Head::from(&head), key);
        matches!(extracted, Extracted::Key).then_some(())
    }

    /// The head of a request that carries a text as this part of its key. `None`: no client sends one, although it may be written.
    fn request(&self, text: &str) -> Option<Parts> {
        let (mut head, ()) = http::Request::new(()).into_parts();
        let (_, name) = self.name.split_once(':').unwrap_or(("", &self.name));
        match self.kind {
            "client_ip" => {
                let address = text.parse::<IpAddr>().ok()?;
                head.extensions.insert(PeerAddr((address, 0).into()));
            }
            "authorization" | "header" => {
                let name = HeaderName::try_from(name).ok()?;
                head.headers.insert(name, HeaderValue::from_str(text).ok()?);
            }
            "cookie" if text.contains(';') => return None,
            "cookie" => {
                let cookie = HeaderValue::from_str(&format!("{name}={text}")).ok()?;
                head.headers.insert(COOKIE, cookie);
            }
            "query" => {
                // It may have escapes of its own.
                let value = percent(text).replace("%25", "%");
                let query = format!("/?{}={value}", percent(name));
                head.uri = query.parse().ok()?;
            }
            "path" if !is_path(text) => return None,
            "path" | "grpc_method" if !text.starts_with('/') => return None,
            "path" | "grpc_method" => (head.method, head.uri) = (Method::POST, text.parse().ok()?),
            "grpc_service" => {
                head.method = Method::POST;
                head.uri = format!("/{text}/Method").parse().ok()?;
            }
            "method" if text.bytes().any(|byte| byte.is_ascii_lowercase()) => return None,
            "method" => head.method = Method::from_bytes(text.as_bytes()).ok()?,
            "descriptor" => Descriptor::new("", [(name, text)]).describe(&mut head),
            "constant" => {}
            _ => return None,
        }
        Some(head)
    }

    fn example(&self) -> &'static str {
        match self.kind {
            "client_ip" => "write an address, as 192.0.2.7 or 2001:db8::1",
            "method" => "write a method in upper case, as POST",
            "grpc_service" => "write a service, as weather.v1.Weather",
            "grpc_method" => "write a method with its service, as /weather.v1.Weather/Current",
            "path" => {
                "write a path as clients send it, as /search, without a query, parameters and stars; escape other characters, as \
                 /caf%C3%A9"
            }
            "path:" => {
                "write what clients send in one segment of the path, escaped or not; without a query and stars"
            }
            _ => "write the value that clients send",
        }
    }
}

/// Whether it is a path as clients send it.
fn is_path(text: &str) -> bool {
    PathPattern::new(text).is_ok_and(|pattern| pattern.parameters().next().is_none())
}

/// Each byte that is no letter or digit as `%7E`.
fn percent(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    bytes.collect()
}
