//! Header fields and rejections as a user of the crate sees them.

use std::fmt::Debug;

use bytes::Bytes;
use http::Response;
use tollgate::{
    header::{HeaderStyle, exposed_headers, grpc_exposed_headers},
    rejection::{Denial, Rejection},
};

#[test]
fn every_field_is_exposed_once_and_in_lower_case() {
    let names: Vec<_> = exposed_headers().map(|name| name.to_string()).collect();
    assert_eq!(
        names,
        [
            "ratelimit",
            "ratelimit-policy",
            "ratelimit-limit",
            "ratelimit-remaining",
            "ratelimit-reset",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "retry-after",
        ]
    );
}

#[test]
fn grpc_fields_are_exposed_by_a_separate_list() {
    let names: Vec<_> = grpc_exposed_headers()
        .map(|name| name.to_string())
        .collect();
    assert_eq!(
        names,
        [
            "grpc-status",
            "grpc-message",
            "grpc-status-details-bin",
            "grpc-retry-pushback-ms",
        ]
    );
}

#[test]
fn the_debug_of_a_style_names_its_parts() {
    const STYLE: HeaderStyle = HeaderStyle::DRAFT_7.and(HeaderStyle::DRAFT_6);
    for (style, name) in [
        (HeaderStyle::NONE, "NONE"),
        (HeaderStyle::DRAFT_11, "DRAFT_11"),
        (STYLE, "DRAFT_7 | DRAFT_6"),
        (
            STYLE | HeaderStyle::X_RATELIMIT_EPOCH,
            "DRAFT_7 | DRAFT_6 | X_RATELIMIT_EPOCH",
        ),
    ] {
        assert_eq!(format!("{style:?}"), name);
    }
}

#[test]
fn a_rejection_is_a_value_that_is_named_and_shared() {
    fn shared<T: Clone + Debug + Send + Sync + 'static>(_: &T) {}
    fn teapot(denial: &Denial<'_>) -> Response<Bytes> {
        let names: Vec<_> = denial.violated().collect();
        let mut response = Response::new(names.join(", ").into());
        *response.status_mut() = denial.status();
        response
    }
    let rejections = [
        Rejection::problem(),
        Rejection::json(),
        Rejection::text(),
        Rejection::empty(),
        Rejection::custom(teapot),
        Rejection::custom(|_| Response::new(Bytes::new())),
    ];
    shared(&rejections);
    shared(&HeaderStyle::NONE);
    assert_eq!(format!("{:?}", rejections[4]), "Rejection::custom");
}
