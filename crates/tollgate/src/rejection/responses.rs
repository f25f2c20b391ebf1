//! The response to a denial in the protocol of the request.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use tollgate_core::RuleSet;

use crate::{
    protocol::WireProtocol,
    rejection::{denial::Denial, grpc::GrpcRejection, http::HttpRejection, style::Rejection},
};

/// Rejections for one rule set, prepared once.
#[derive(Debug)]
pub(crate) struct Responses {
    http: HttpRejection,
    grpc: GrpcRejection,
}

impl Responses {
    /// Prepares responses. `status` is that of an exceeded quota.
    pub(crate) fn new(rejection: Rejection, rules: &RuleSet, status: StatusCode) -> Self {
        Self {
            http: HttpRejection::new(rejection, rules, status),
            grpc: GrpcRejection::new(rules),
        }
    }

    /// The response, without `Retry-After` and the quota's fields.
    pub(crate) fn respond(&self, denial: &Denial<'_>, protocol: WireProtocol) -> Response<Bytes> {
        match protocol {
            WireProtocol::Http => self.http.respond(denial),
            _ => self.grpc.respond(denial, protocol),
        }
    }

    /// The trailers of a gRPC response that has begun.
    pub(crate) fn trailers(&self, denial: &Denial<'_>) -> HeaderMap {
        self.grpc.trailers(denial)
    }
}
