//! Rules that processes share through Redis.
//!
//! A document is pushed once, and is in force in every process of the service within a second:
//!
//! ```no_run
//! use tollgate::MemoryStore;
//! use tollgate_redis::Secret;
//! use tollgate_rules::{Author, Bindings, Format, LiveRules, RuleText, redis::RedisRules};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = RedisRules::new("redis://localhost", "shop", &Secret::from_env("TOLLGATE_SECRET")?)?;
//!
//! // In a service: one that starts while Redis is down has the rules of the file.
//! let fallback = RuleText::new(std::fs::read_to_string("limits.toml")?, Format::Toml);
//! let rules = LiveRules::builder(Bindings::new()).fallback(fallback).follow(redis.source()).await?;
//!
//! // In a program for operators, with the same bindings:
//! let limits = RuleText::new(std::fs::read_to_string("limits.toml")?, Format::Toml);
//! let author = Author::new("alice").because("ticket 4711");
//! let revision = redis.push(limits, &Bindings::new(), &author).await?;
//! println!("revision {revision} is pushed");
//! # drop(rules);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! - **The document and its revision are in the service's namespace.** One script compares the revision that was seen, stores
//!   the new one, writes the audit and publishes. Two who push at once do not overwrite each other: the second one gets an
//!   [error](PushError) and looks again.
//! - **What operators set lies beside the document**: overrides and switches, with who set each. A push leaves them in force. What does
//!   not go with the new document waits for one that it goes with; [`RedisRules::stored`] says which.
//! - **Processes listen and look.** A publication arrives at once; where it is lost, as in a failover, the next look finds the
//!   document. A process looks every 5 s, and tells at the same time which revision it has in force.
//! - **A document is signed** with a key that is derived from the service's secret. One without a right signature is rejected:
//!   otherwise everybody who can write to the namespace could switch limits off. The signature covers the namespace and the
//!   revision. Who can write to Redis can still delete the document, or put an older signed one back: processes that run ignore it,
//!   one that starts anew does not know better.
//! - **No key of a client is in it.** Overrides hold a keyed hash, which is found again with the secret alone. Comments are
//!   dropped. What is written in a `reason` or a `description` stays as it is, and so does what a condition compares with.
//! - **While Redis is unavailable** the last document stays in force. A process that starts then has its
//!   [fallback](crate::LiveRulesBuilder::fallback), or does not start.
//!
//! With a changed secret, push the document by [`RedisRules::replace_all`]: processes with the new secret reject what the old one signed,
//! and find no client by its hashes.
//!
//! # Which servers
//!
//! One server, the master that Sentinel names, or a cluster, by the [addresses](tollgate_redis::Address) that stores have; with
//! `rediss` encrypted (feature `tls`, [`RedisRules::with_tls`]). None of it is on the path of a request.
//!
//! The connections are those of [redis-rs](https://docs.rs/redis), with its clients for Sentinel and Cluster. *Behind Sentinel*, the
//! sentinels are asked for each new connection, and again every five seconds: of those that answer, the first one of the address that
//! names a master decides. One that was cut off together with an old master may lead to that, which serves an old revision: processes that have seen a newer one
//! refuse it by its number. A push after which the master fails, or that an old master took, may be lost with what was not
//! replicated, as every write: processes keep the rules that they have seen, and the next push gets a number above theirs. *In a
//! cluster*, all names have the namespace as their hash tag and lie in one hash slot; the server that has it is followed when that
//! moves or a replica takes over. Name several servers in the address, because one may be down.
//!
//! *A server that has lost the rules* learns from the processes which number they have in force, some seconds after they have reached
//! it. A document that is pushed before that gets a lower number, and they reject it as older: push it again. What operators had set is lost
//! with it, and ends with that push: the [status](crate::RulesStatus::lost) of processes says what. Until the push, nothing else can be set.
//!
//! # What is kept
//!
//! | key | is |
//! | --- | --- |
//! | `{shop}:rules` | the document, what operators set, the revision, the signature, and who made the latest change |
//! | `{shop}:rules:pushed` | when each of the last 100 revisions was pushed |
//! | `{shop}:rules:in_force`, `:rules:last_seen`, `:rules:said` | what processes say; gone 15 s after the last one was heard |
//! | `{shop}:rules:audit` | a stream of about 10 000 [records](RedisRules::audit) |
//!
//! The channel is `{shop}:rules`. A user of the server needs these keys, that channel, and `EVAL`, `SUBSCRIBE`, and what the scripts call: `+@hash +@sortedset +@stream +pexpire +time +publish`. Behind Sentinel it needs `ROLE`,
//! and a user of the sentinels `SENTINEL MASTERS` and `ROLE`, which the store alone does not; in a cluster `CLUSTER SLOTS`.

#[cfg(feature = "tls")]
mod certificates;
mod changes;
mod link;
mod push_error;
mod redis_rules;
pub(crate) mod redis_source;

#[cfg(feature = "tls")]
pub use self::{certificates::Certificates, link::client_of};
pub use self::{
    push_error::{PushError, PushErrorKind},
    redis_rules::RedisRules,
    redis_source::RedisSource,
};
