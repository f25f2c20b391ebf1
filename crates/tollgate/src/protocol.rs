//! Which protocol a request speaks.

use http::{HeaderMap, Method, header, request::Parts};

/// How denials are answered: see [`RateLimitLayer::protocol`](crate::RateLimitLayer::protocol). And which requests have
/// messages to count: see [`MessageLimitLayer::protocol`](crate::MessageLimitLayer::protocol).
///
/// In front of a service without gRPC take [`Http`](Self::Http). The content type is the client's own word: with
/// [`Auto`](Self::Auto), a POST that says `application/grpc` is denied in gRPC, which over HTTP is a 200. It is denied all the
/// same, but an access log, a dashboard or a proxy that looks at the status takes it for a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// As the request asks: in gRPC where it is a POST whose content type says so, over HTTP otherwise.
    #[default]
    Auto,
    /// Over HTTP, whatever the request says: for JSON, pages, files.
    Http,
    /// In gRPC, whatever the request says.
    Grpc,
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http,
    Grpc,
    /// gRPC-Web; its messages are encoded in base64 if `text`.
    GrpcWeb {
        text: bool,
    },
}

impl Protocol {
    /// What the client of this request speaks.
    pub(crate) fn of(self, head: &Parts) -> Spoken {
        match self {
            Self::Http => Spoken::Http,
            // gRPC-Web stays what it is: its client reads nothing else.
            Self::Grpc => match spoken(&head.headers) {
                Spoken::Http => Spoken::Grpc,
                grpc => grpc,
            },
            Self::Auto if head.method == Method::POST => spoken(&head.headers),
            Self::Auto => Spoken::Http,
        }
    }
}

/// By the content type alone. Connect is HTTP: it means what the status says.
pub(crate) fn spoken(headers: &HeaderMap) -> Spoken {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else {
        return Spoken::Http;
    };
    let content_type = content_type.as_bytes();
    let media_type = content_type
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    // The format of the messages, `+proto` say, does not matter.
    let family = media_type
        .split(|byte| *byte == b'+')
        .next()
        .unwrap_or_default();
    if family.eq_ignore_ascii_case(b"application/grpc") {
        Spoken::Grpc
    } else if family.eq_ignore_ascii_case(b"application/grpc-web") {
        Spoken::GrpcWeb { text: false }
    } else if family.eq_ignore_ascii_case(b"application/grpc-web-text") {
        Spoken::GrpcWeb { text: true }
    } else {
        Spoken::Http
    }
}

#[cfg(test)]
mod tests {
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
    fn the_content_type_of_a_post_says_what_is_spoken() {
        for (content_type, expected) in [
            ("application/grpc", Spoken::Grpc),
            ("application/grpc+proto", Spoken::Grpc),
            ("application/grpc+proto; x=y", Spoken::Grpc),
            (" Application/GRPC ; charset=utf-8", Spoken::Grpc),
            ("application/grpc+json", Spoken::Grpc),
            ("application/grpc-web", Spoken::GrpcWeb { text: false }),
            (
                "application/grpc-web+proto",
                Spoken::GrpcWeb { text: false },
            ),
            ("application/grpc-web-text", Spoken::GrpcWeb { text: true }),
            (
                "application/grpc-web-text+proto",
                Spoken::GrpcWeb { text: true },
            ),
            ("application/grpcx", Spoken::Http),
            ("application/grpc-websocket", Spoken::Http),
            ("application/connect+proto", Spoken::Http),
            ("application/proto", Spoken::Http),
            ("application/json", Spoken::Http),
            ("", Spoken::Http),
        ] {
            let head = head(Method::POST, content_type);
            assert_eq!(Protocol::Auto.of(&head), expected, "{content_type}");
        }
    }

    #[test]
    fn what_is_not_a_post_is_not_grpc_unless_the_layer_says_so() {
        let get = head(Method::GET, "application/grpc");
        assert_eq!(Protocol::Auto.of(&get), Spoken::Http);
        assert_eq!(Protocol::Grpc.of(&get), Spoken::Grpc);
        let post = head(Method::POST, "application/grpc");
        assert_eq!(Protocol::Http.of(&post), Spoken::Http);
    }

    #[test]
    fn a_layer_that_answers_in_grpc_answers_grpc_web_in_grpc_web() {
        let web = head(Method::POST, "application/grpc-web-text");
        assert_eq!(Protocol::Grpc.of(&web), Spoken::GrpcWeb { text: true });
        assert_eq!(
            Protocol::Grpc.of(&head(Method::POST, "text/plain")),
            Spoken::Grpc
        );
    }
}
