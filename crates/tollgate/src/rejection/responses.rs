//! The response to a denial in the protocol that its client speaks.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use tollgate_core::RuleSet;

use crate::{
    protocol::Spoken,
    rejection::{denial::Denial, grpc::GrpcRejection, http::HttpRejection, style::Rejection},
};

/// Rejections for one rule set. Made once, when the rule set comes into force.
#[derive(Debug)]
pub(crate) struct Responses {
    http: HttpRejection,
    grpc: GrpcRejection,
}

impl Responses {
    /// Prepares what can be. `status` is the usual one for a quota that is used up.
    pub(crate) fn new(rejection: Rejection, rules: &RuleSet, status: StatusCode) -> Self {
        Self {
            http: HttpRejection::new(rejection, rules, status),
            grpc: GrpcRejection::new(rules),
        }
    }

    /// The response, without `Retry-After` and the quota's fields.
    pub(crate) fn respond(&self, denial: &Denial<'_>, spoken: Spoken) -> Response<Bytes> {
        match spoken {
            Spoken::Http => self.http.respond(denial),
            _ => self.grpc.respond(denial, spoken),
        }
    }

    /// The trailers that end a response in gRPC that has begun.
    pub(crate) fn trailers(&self, denial: &Denial<'_>) -> HeaderMap {
        self.grpc.trailers(denial)
    }
}
