//! What the tests share: the program, servers, and files of rules.

mod program;
mod redis_cluster;
mod redis_server;

pub(crate) use self::{
    program::{Program, Ran, SECRET, assert_harmless, words},
    redis_cluster::RedisCluster,
    redis_server::{RedisServer, fill, server_program, start_sentinel, until},
};
