//! The lists for scripts in a browser.

use crate::header::{exposed_headers, grpc_exposed_headers};

#[test]
fn every_field_is_exposed_once_and_in_lower_case_and_those_of_grpc_by_a_list_of_their_own() {
    let names: Vec<_> = exposed_headers().collect();
    let lists = [
        "ratelimit ratelimit-policy ratelimit-limit ratelimit-remaining ratelimit-reset",
        "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset retry-after",
    ];
    assert_eq!(names, lists.join(" ").split(' ').collect::<Vec<_>>());
    let names: Vec<_> = grpc_exposed_headers().collect();
    let list = "grpc-status grpc-message grpc-status-details-bin grpc-retry-pushback-ms";
    assert_eq!(names, list.split(' ').collect::<Vec<_>>());
}
