//! Rate limits in files, which change while a service runs: [tollgate](https://docs.rs/tollgate)'s rules as TOML, YAML or JSON.
//!
//! ```toml
//! # limits.toml
//! version = 1
//!
//! [[rules]]
//! name = "api"
//! limit = "60/min burst 10"
//! by = "client_ip"
//! ```
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use tollgate::MemoryStore;
//! use tollgate_rules::{Bindings, LiveRules};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // A mistake in the file is an error here, with its line and what would be right. Later, it changes nothing.
//!     let rules = LiveRules::watch("limits.toml", Bindings::new())?;
//!     let limits = rules.layer(MemoryStore::new())?;
//!     let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limits);
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     let service = app.into_make_service_with_connect_info::<SocketAddr>();
//!     Ok(axum::serve(listener, service).await?)
//! }
//! ```
//!
//! Save the file, and the new limits are in force within a second, without a lost request or a lost count.
//!
//! # The parts
//!
//! - [`LiveRules`] follows a file, a folder, a text or a [`Source`] of your own, and keeps layers to it.
//! - [`RuleDocument`] is one document, read and checked as a whole; its rules go into a layer or a limiter.
//! - [`Bindings`] name what needs code: keys, conditions, costs, plans.
//! - [`LiveRulesHandle`] raises one client's limit until tomorrow, or switches a rule off; an [`AuditSink`] gets who did it.
//! - The limits may be in memory, or on Redis with [tollgate-redis](https://docs.rs/tollgate-redis). With the feature `redis`, the
//!   documents too: one push is in force in all processes.
//! - [`operators`] has what programs for operators ask; [`import_envoy`](operators::import_envoy) makes a document of the configuration of envoyproxy/ratelimit.
//! - [tollgate-cli](https://docs.rs/crate/tollgate-cli) checks, explains and compares the same files.
//!
//! # The guide
//!
//! - [`guide::files`]: a first file, what may be in it, how it changes while the service runs, moving constants out of code
//! - [`guide::edge`]: the same file for Envoy, nginx, Caddy, Traefik and HAProxy
//! - [`guide::reference`]: every table and field; [`SCHEMA`] is the same for editors
//! - with the feature `redis`, the module `redis`: rules that many processes share
//! - the [glossary](https://docs.rs/tollgate/latest/tollgate/guide/index.html#glossary): what the words mean
//!
//! # Bounds
//!
//! Tables lie at most 32 deep, a document has at most 64 MiB, and aliases of YAML may not multiply it. No key is part of an event or
//! an error, unless it is written in the document.
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

#![cfg_attr(docsrs, feature(doc_cfg))]

mod assembly;
mod audit;
mod bindings;
mod condition;
mod descriptor;
mod document_changes;
mod document_error;
mod document_tables;
mod entry;
mod envoy_import;
mod explanation;
mod format;
pub mod guide;
mod key_label;
mod list_file;
mod live_rules;
mod node;
mod operator_entries;
mod reader;
#[cfg(feature = "redis")]
pub mod redis;
mod response_condition;
mod rule_document;
mod rule_entry;
mod rule_key;
mod rule_settings;
mod rule_text;
mod rules_in_force;
mod rules_status;
mod schema;
#[cfg(feature = "redis")]
mod signing_key;
mod source;
mod term;

pub use self::{
    audit::{AuditKind, AuditRecord, AuditSink, Author},
    bindings::Bindings,
    document_error::{DocumentError, Mistake},
    format::Format,
    list_file::ListFile,
    live_rules::{LiveRules, LiveRulesBuilder, LiveRulesHandle, RulesUpdates},
    operator_entries::OperatorEntry,
    rule_document::RuleDocument,
    rule_text::RuleText,
    rules_status::{FleetStatus, LaggingProcess, RulesStatus},
    schema::SCHEMA,
    source::{FileSource, Source, SourceError},
};

pub mod operators {
    //! What programs for operators need, and no service does: `tollgate` on the command line, the console, `tollgate-server`.
    //!
    //! They ask a [`RuleDocument`](crate::RuleDocument) what it does with a request or a client and what is set beside it, and make
    //! documents of other formats.

    #[cfg(feature = "redis")]
    pub use crate::redis::redis_source::StoredRules;
    pub use crate::{
        descriptor::Descriptor,
        document_changes::{EntryOrigin, EntryStatus},
        envoy_import::import_envoy,
        explanation::{Explained, Explanation, QuotaOrigin},
        operator_entries::EntryKind,
    };
}

/// Runs the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
