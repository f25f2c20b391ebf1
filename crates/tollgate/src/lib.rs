//! tollgate (docs later)

#![cfg_attr(docsrs, feature(doc_cfg))]

mod admission;
mod body;
mod config;
mod future;
pub mod header;
pub mod key;
mod layer;
mod observe;
pub mod rejection;
mod rule;
mod service;

pub use tollgate_core::*;

pub use self::{
    admission::{Admission, Denied, RuleVerdict},
    body::ResponseBody,
    future::ResponseFuture,
    header::HeaderStyle,
    layer::RateLimitLayer,
    rejection::Rejection,
    rule::{By, Missing, RequestRule},
    service::RateLimit,
};
