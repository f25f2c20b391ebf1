//! The response to a denial in the protocol of the request.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{Response, StatusCode};
use tollgate_core::RuleSet;

use crate::{
    header::PerQuota,
    protocol::WireProtocol,
    rejection::{bodies::OpenBody, denial::Denial, protobuf::Message, style::Rejection},
};

/// Rejections for one rule set, prepared once.
#[derive(Debug)]
pub(crate) struct Responses {
    pub(super) rejection: Rejection,
    /// That of an exceeded quota.
    pub(super) status: StatusCode,
    /// The body of a denial by one quota, with this status.
    pub(super) bodies: PerQuota<OnceLock<OpenBody>>,
    /// The `QuotaFailure` of a denial by one quota.
    pub(super) failures: PerQuota<OnceLock<Message>>,
}

impl Responses {
    /// Prepares responses. `status` is that of an exceeded quota.
    pub(crate) fn new(rejection: Rejection, rules: &RuleSet, status: StatusCode) -> Self {
        Self {
            rejection,
            status,
            bodies: PerQuota::on_demand(rules),
            failures: PerQuota::on_demand(rules),
        }
    }

    /// The response, without `Retry-After` and the quota's fields.
    pub(crate) fn respond(&self, denial: &Denial<'_>, protocol: WireProtocol) -> Response<Bytes> {
        match protocol {
            WireProtocol::Http => self.http(denial),
            _ => self.grpc(denial, protocol),
        }
    }
}
