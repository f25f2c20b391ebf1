//! Rate limits in files, which change while a service runs: tollgate's rules as TOML, YAML or JSON.
//!
//! [`LiveRules`] follows a file, a folder, a text or a [`Source`] of your own, and keeps layers to it. A [`RuleDocument`] is one document, read and checked as
//! a whole; its rules go into a layer or a limiter. [`Bindings`] name what needs code.
//!
//! # Example
//!
//! ```
//! use tollgate::MemoryStore;
//! use tollgate_rules::{Bindings, LiveRules};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("limits.toml");
//! # std::fs::write(&path, "version = 1\n[[rules]]\nname = 'api'\nlimit = '60/min'\nby = 'client_ip'\n")?;
//! let rules = LiveRules::watch(&path, Bindings::new())?;
//! let layer = rules.layer(MemoryStore::new())?;
//! // `Router::new().route(..).layer(layer)`
//! assert_eq!(rules.status().revision(), 1);
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```
//!
//! # A customised one
//!
//! Several files, a key of the application, and a text form for its overrides:
//!
//! ```
//! use tollgate::{Key, key::computed};
//! use tollgate_rules::{Bindings, Format, RuleDocument};
//!
//! #[derive(Clone)]
//! struct Tenant(String);
//!
//! let by_tenant = computed(|head| Some(Key::of(&head.extensions.get::<Tenant>()?.0)));
//! let bindings = Bindings::new().key_with_text("tenant", by_tenant, |text| Some(Key::of(text)));
//! let text = r#"{
//!     "version": 1,
//!     "rules": [{"name": "per-tenant", "limit": "1000/h", "by": "tenant", "rollout": {"percent": 5, "others": "shadow"}}],
//!     "overrides": [{"rule": "per-tenant", "key": "acme", "limit": "unlimited"}]
//! }"#;
//! let document = RuleDocument::parse(text, Format::Json, &bindings)?;
//! assert_eq!(document.rules().len(), 2); // the rule, and its shadow for the others
//! # Ok::<(), tollgate_rules::DocumentError>(())
//! ```
//!
//! # The model
//!
//! | field of a rule | is | default |
//! | --- | --- | --- |
//! | `name` | its [name](tollgate::Rule::new), which is the identity of its budget | |
//! | `limit` | a quota [as text](tollgate::Quota#impl-FromStr-for-Quota): `"20/s burst 50"`; or `{ algorithm, units, per, burst, buckets }` | |
//! | `by` | `client_ip`, `header:x-api-key`, `cookie:…`, `query:…`, `path`, `path:id` (a parameter of the rule's own path), `method`, `grpc_service`, `grpc_method`, `constant`, `route` (with the feature `axum`), a bound name, or a list of up to six | |
//! | `when` | a bound name, or a table of which all hold: `path` (as axum's router matches it), `methods`, `header` (a name, or `{ name, equals }`), `grpc_service`, `grpc_method`, `client_in`, `is` (bound names), `not`, `any`, `all` | always |
//! | `unless` | a condition under which requests pass [uncounted](tollgate::RequestRule::exempt) | never |
//! | `cost` | units, a bound name, or `{ header, max }`: without the header, `max` | 1 |
//! | `plan`, `plans` | a bound name, and limits by name | none |
//! | `consistency` | `"exact"`, `{ leased = "10%" }`, `{ eventual = { interval = "50ms", max_unreported = 100 } }` | exact |
//! | `on_store_error` | `"local_share"`, `"allow"`, `"deny"`, `"degraded"`, `{ cap = "10/s" }` | local share |
//! | `mode` | `"enforce"`, `"shadow"`, `"off"` | enforce |
//! | `rollout` | `{ percent = 5, others = "off" }` or `"shadow"`: a key that is in at 5 % is still in at 20 % | all |
//! | `on_change` | what becomes of used units: [`"keep"`, `"scale"`, `"reset"`](tollgate::OnChange) | keep |
//! | `missing` | requests without a key: `"shared"`, `"skip"`, or a status as `401` | shared |
//! | `keep_on_error` | whether units are [kept](tollgate::RequestRule::keep_on_error) when the service fails | false |
//! | `description` | for readers | |
//!
//! Beside `rules` a document has `version = 1` and may have:
//!
//! - **`groups`** of `name` and `rules`: only the most specific rule whose condition holds counts a request. A literal segment of a
//!   path is more specific than a parameter, that more than a catch-all, and a rule with methods more than one without.
//! - **`overrides`** of `rule`, `key`, `limit`, `until` and `reason`: a client's own limit, found by its key. Without an algorithm the
//!   limit has the rule's. A rule by several keys takes a list of texts.
//! - **`switches`** of `rules` (a name, a list, or `"*"`), `limit`, `until` and `reason`: `"50%"` of all limits, rounded up, or
//!   `"shadow"`, or `"off"`, before everything else. What is off stays off.
//! - **`include`**: the name of a file in the same folder, or a list of them, whose rules belong to the document. Each has its own
//!   `version`.
//!
//! # Bounds
//!
//! Tables lie at most 32 deep, a document has at most 64 MiB, and aliases of YAML may not multiply it. No key is part of an event or
//! an error, unless it is written in the document.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod assembly;
mod bindings;
mod condition;
mod cost;
mod document_error;
mod entries;
mod file_reader;
mod file_source;
mod format;
mod limit;
mod live_rules;
mod live_rules_builder;
mod node;
mod override_entry;
mod path_pattern;
mod path_watch;
mod problems;
mod reader;
mod rollout;
mod rule_document;
mod rule_entry;
mod rule_key;
mod rule_text;
mod rules_in_force;
mod rules_status;
mod source;
mod store_policy;
mod switch_entry;
mod toml_tree;
mod yaml_tree;

pub use self::{
    bindings::Bindings,
    document_error::{DocumentError, Mistake},
    file_source::FileSource,
    format::Format,
    live_rules::LiveRules,
    live_rules_builder::LiveRulesBuilder,
    rule_document::RuleDocument,
    rule_text::RuleText,
    rules_status::RulesStatus,
    source::{Source, SourceError},
};

/// Runs the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
