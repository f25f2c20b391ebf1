//! The protocol of a request.

use http::{HeaderMap, Method, header};

use crate::head::Head;

/// The protocol of denials, see [`RateLimitLayer::protocol`](crate::RateLimitLayer::protocol), and of requests whose messages
/// are counted, see [`MessageLimitLayer::protocol`](crate::message::MessageLimitLayer::protocol).
///
/// In front of a service without gRPC, set [`Http`](Self::Http). The client chooses the content type: with
/// [`Auto`](Self::Auto), the denial of a POST with `application/grpc` is a gRPC response, whose HTTP status is 200. Access logs,
/// dashboards and proxies that look at the status count it as a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// gRPC for a POST with a gRPC content type, HTTP otherwise.
    #[default]
    Auto,
    /// HTTP, whatever the content type.
    Http,
    /// gRPC, also for a request without a gRPC content type. A gRPC-Web request is still answered as gRPC-Web.
    Grpc,
}

/// The protocol of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireProtocol {
    Http,
    Grpc,
    /// gRPC-Web; in base64 if `text`.
    GrpcWeb {
        text: bool,
    },
}

impl Protocol {
    /// The protocol of this request.
    pub(crate) fn of(self, head: &Head<'_>) -> WireProtocol {
        match self {
            Self::Http => WireProtocol::Http,
            // A gRPC-Web client understands nothing else.
            Self::Grpc => match by_content_type(head.headers) {
                WireProtocol::Http => WireProtocol::Grpc,
                grpc => grpc,
            },
            Self::Auto if head.method == Method::POST => by_content_type(head.headers),
            Self::Auto => WireProtocol::Http,
        }
    }

    /// The protocol of a response with these header fields.
    pub(crate) fn of_response(self, headers: &HeaderMap) -> WireProtocol {
        match (self, by_content_type(headers)) {
            (Self::Http, _) => WireProtocol::Http,
            (Self::Grpc, WireProtocol::Http) => WireProtocol::Grpc,
            (_, protocol) => protocol,
        }
    }
}

/// By the content type alone. Connect counts as HTTP, because it uses HTTP status codes.
fn by_content_type(headers: &HeaderMap) -> WireProtocol {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else {
        return WireProtocol::Http;
    };
    // The message format, such as `+proto`, does not matter.
    let mut parts = content_type.as_bytes().split(|byte| b";+".contains(byte));
    let family = parts.next().unwrap_or_default().trim_ascii();
    if family.eq_ignore_ascii_case(b"application/grpc") {
        WireProtocol::Grpc
    } else if family.eq_ignore_ascii_case(b"application/grpc-web") {
        WireProtocol::GrpcWeb { text: false }
    } else if family.eq_ignore_ascii_case(b"application/grpc-web-text") {
        WireProtocol::GrpcWeb { text: true }
    } else {
        WireProtocol::Http
    }
}

#[cfg(test)]
mod tests {
    use http::request::Parts;

    use super::*;

    fn head(method: Method, content_type: &str) -> Parts {
        http::Request::builder()
            .method(method)
            .header(header::CONTENT_TYPE, content_type)
            .body(())
            .expect("a request")
            .into_parts()
            .0
    }

    #[test]
    fn the_content_type_of_a_post_determines_the_protocol() {
        for (content_type, expected) in [
            ("application/grpc", WireProtocol::Grpc),
            ("application/grpc+proto", WireProtocol::Grpc),
            ("application/grpc+proto; x=y", WireProtocol::Grpc),
            (" Application/GRPC ; charset=utf-8", WireProtocol::Grpc),
            ("application/grpc+json", WireProtocol::Grpc),
            (
                "application/grpc-web",
                WireProtocol::GrpcWeb { text: false },
            ),
            (
                "application/grpc-web+proto",
                WireProtocol::GrpcWeb { text: false },
            ),
            (
                "application/grpc-web-text",
                WireProtocol::GrpcWeb { text: true },
            ),
            (
                "application/grpc-web-text+proto",
                WireProtocol::GrpcWeb { text: true },
            ),
            ("application/grpcx", WireProtocol::Http),
            ("application/grpc-websocket", WireProtocol::Http),
            ("application/connect+proto", WireProtocol::Http),
            ("application/proto", WireProtocol::Http),
            ("application/json", WireProtocol::Http),
            ("", WireProtocol::Http),
        ] {
            let head = head(Method::POST, content_type);
            assert_eq!(
                Protocol::Auto.of(&Head::from(&head)),
                expected,
                "{content_type}"
            );
        }
    }

    #[test]
    fn other_methods_are_not_grpc_unless_configured() {
        let get = head(Method::GET, "application/grpc");
        assert_eq!(Protocol::Auto.of(&Head::from(&get)), WireProtocol::Http);
        assert_eq!(Protocol::Grpc.of(&Head::from(&get)), WireProtocol::Grpc);
        let post = head(Method::POST, "application/grpc");
        assert_eq!(Protocol::Http.of(&Head::from(&post)), WireProtocol::Http);
    }

    #[test]
    fn grpc_web_stays_grpc_web() {
        let web = head(Method::POST, "application/grpc-web-text");
        assert_eq!(
            Protocol::Grpc.of(&Head::from(&web)),
            WireProtocol::GrpcWeb { text: true }
        );
        assert_eq!(
            Protocol::Grpc.of(&Head::from(&head(Method::POST, "text/plain"))),
            WireProtocol::Grpc
        );
    }
}
