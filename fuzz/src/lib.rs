//! What the fuzz targets call: the parts of tollgate-redis that read and write the protocol of Redis, and the documents of
//! tollgate-rules.

mod connection;
mod documents;

pub use self::{
    connection::{compare_command, compare_reply},
    documents::read_document,
};
