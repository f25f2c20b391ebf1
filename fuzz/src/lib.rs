//! What the fuzz targets call: the parts of tollgate-redis that read and write the protocol of Redis, the documents of
//! tollgate-rules, and what tollgate-server answers.

mod connection;
mod documents;
mod envoy;

pub use self::{
    connection::{compare_command, compare_reply},
    documents::read_document,
    envoy::answer_envoy,
};
