//! The end of a response in gRPC-Web: trailers as a last frame of data (PROTOCOL-WEB of gRPC).

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::HeaderMap;

/// The frame with these trailers; in base64 if `text`.
pub(super) fn trailers_frame(trailers: &HeaderMap, text: bool) -> Bytes {
    let mut frame = vec![0x80, 0, 0, 0, 0];
    for (name, value) in trailers {
        frame.extend_from_slice(name.as_str().as_bytes());
        frame.push(b':');
        frame.extend_from_slice(value.as_bytes());
        frame.extend_from_slice(b"\r\n");
    }
    // The trailers of a denial are some kilobytes at most.
    let length = (frame.len() - 5) as u32;
    frame[1..5].copy_from_slice(&length.to_be_bytes());
    if text {
        BASE64_STANDARD.encode(frame).into()
    } else {
        frame.into()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn exceeded() -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("8"));
        let message = HeaderValue::from_static("rate%20limit%20exceeded");
        trailers.insert("grpc-message", message);
        trailers
    }

    #[test]
    fn it_is_a_frame_of_fields() {
        let mut expected = vec![0x80, 0, 0, 0, 0x35];
        expected.extend(b"grpc-status:8\r\ngrpc-message:rate%20limit%20exceeded\r\n");
        assert_eq!(trailers_frame(&exceeded(), false), expected);
    }

    #[test]
    fn in_text_it_is_the_same_in_base64() {
        assert_eq!(
            trailers_frame(&exceeded(), true),
            "gAAAADVncnBjLXN0YXR1czo4DQpncnBjLW1lc3NhZ2U6cmF0ZSUyMGxpbWl0JTIwZXhjZWVkZWQNCg=="
        );
    }
}
