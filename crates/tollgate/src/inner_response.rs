//! The response of the inner service, as rules see it.

use http::{HeaderMap, HeaderValue, StatusCode};

use crate::{
    header::name::GRPC_STATUS,
    protocol::{Protocol, WireProtocol},
};

/// The response of the inner service, for [`RequestRule::count_if`](crate::RequestRule::count_if) and
/// [`RequestRule::cost_by_response`](crate::RequestRule::cost_by_response). An error of the inner service is one as well, with the
/// status 500.
#[derive(Clone, Copy, Debug)]
pub struct InnerResponse<'a> {
    status: StatusCode,
    /// `None`: an error.
    headers: Option<&'a HeaderMap>,
    trailers: Option<&'a HeaderMap>,
    is_error: bool,
    protocol: WireProtocol,
}

impl<'a> InnerResponse<'a> {
    /// By the head of a response.
    pub(crate) fn of(status: StatusCode, headers: &'a HeaderMap, protocol: Protocol) -> Self {
        Self {
            status,
            headers: Some(headers),
            trailers: None,
            is_error: false,
            protocol: protocol.of_response(headers),
        }
    }

    /// An error of the inner service.
    pub(crate) const fn error() -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            headers: None,
            trailers: None,
            is_error: true,
            protocol: WireProtocol::Http,
        }
    }

    /// The same when its body has ended, with these trailers, or with an error.
    pub(crate) fn ended(self, trailers: Option<&'a HeaderMap>, is_error: bool) -> Self {
        Self {
            trailers,
            is_error,
            ..self
        }
    }

    /// Whether the inner service returned an error in place of a response.
    pub(crate) fn is_unserved(&self) -> bool {
        self.headers.is_none()
    }

    /// The protocol in whose trailers the gRPC status will be, if there is none in the head.
    pub(crate) fn awaits_trailers(&self) -> Option<WireProtocol> {
        let has_all = self.protocol == WireProtocol::Http || self.grpc_status().is_some();
        (!has_all).then_some(self.protocol)
    }

    /// The HTTP status; 500 for an error. That of a gRPC call is nearly always 200.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The value of a header field, or of a trailer field of a gRPC call. `None` if it is missing or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let of = |map: Option<&'a HeaderMap>| map?.get(name);
        let value = of(self.trailers).or_else(|| of(self.headers));
        value.and_then(|value: &HeaderValue| value.to_str().ok())
    }

    /// The status of a gRPC call, from the header or the trailers: 0 is OK, 16 is UNAUTHENTICATED. `None` for HTTP, and for a call
    /// that ended without a status.
    ///
    /// With the feature `tonic`, `tonic::Code::from_i32` makes a `Code` of it.
    pub fn grpc_status(&self) -> Option<i32> {
        self.header(GRPC_STATUS.as_str())?.parse().ok()
    }

    /// Whether the inner service returned an error instead of a response, or the body of a gRPC call ended with one.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Whether it is an error of the service, an HTTP status of 400 or above, a gRPC status other than OK, or a gRPC response without a
    /// status.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.is_error
            || self.status.is_client_error()
            || self.status.is_server_error()
            || (self.protocol != WireProtocol::Http && self.grpc_status() != Some(0))
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn response(status: u16, fields: &[(&'static str, &'static str)]) -> Response<()> {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(()).expect("a response")
    }

    #[test]
    fn a_failure_is_a_status_of_400_or_above_or_a_grpc_status_other_than_ok() {
        let grpc = ("content-type", "application/grpc+proto");
        for (status, fields, is_failure) in [
            (200, &[][..], false),
            (303, &[], false),
            (304, &[], false),
            (400, &[], true),
            (401, &[], true),
            (503, &[], true),
            (200, &[grpc, ("grpc-status", "0")], false),
            (200, &[grpc, ("grpc-status", "16")], true),
            (200, &[grpc], true),
            (200, &[grpc, ("grpc-status", "none")], true),
        ] {
            let response = response(status, fields);
            let seen = InnerResponse::of(response.status(), response.headers(), Protocol::Auto);
            assert_eq!(seen.is_failure(), is_failure, "{status} {fields:?}");
            assert!(!seen.is_error());
            assert!(seen.ended(None, true).is_failure());
        }
        let error = InnerResponse::error();
        assert!(error.is_error() && error.is_failure());
        assert_eq!((error.status().as_u16(), error.grpc_status()), (500, None));
    }
}
