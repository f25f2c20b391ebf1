//! For the other crates of tollgate, which do what no layer does: [tollgate-server](https://docs.rs/crate/tollgate-server) decides for the
//! services of others, [tollgate-console](https://docs.rs/tollgate-console) shows operators what rules would do, and
//! [tollgate-rules](https://docs.rs/tollgate-rules) makes conditions of documents.

pub use crate::{
    condition::{path_matches, words_are},
    path_pattern::PathPattern,
    rate_limit::{Inspection, PartsDecision, RequestPart, RuleEffect, grpc_timeout},
    words::Words,
};
