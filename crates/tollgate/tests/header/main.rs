//! Header fields and rejections as a user of the crate sees them.

use tollgate::header::{exposed_headers, grpc_exposed_headers};

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
