//! The module of this name in tollgate-redis, as far as it is fuzzed. Its files are taken by their path: they are private there, and
//! nothing is made public for a fuzzer.

#![allow(
    dead_code,
    reason = "a connection uses the rest of these files, and there is none here"
)]

#[path = "../../../crates/tollgate-redis/src/connection/command.rs"]
mod command;
#[path = "../../../crates/tollgate-redis/src/connection/resp/reference.rs"]
mod reference;
#[path = "../../../crates/tollgate-redis/src/connection/resp.rs"]
mod resp;

use self::{
    command::{push_argument, push_count},
    resp::{Value, decode},
};

/// Reads a reply with both readers.
///
/// # Panics
///
/// They read it differently.
pub fn compare_reply(bytes: &[u8]) {
    if let Err(difference) = reference::compare(bytes) {
        panic!("{difference}");
    }
}

/// Writes a command with both writers, and reads it again: a command is a list of strings, which is a reply too.
///
/// # Panics
///
/// They write it differently, or it is not read as it was written.
pub fn compare_command(parts: &[Vec<u8>]) {
    let mut command = Vec::new();
    push_count(&mut command, parts.len());
    for part in parts {
        push_argument(&mut command, part);
    }
    assert_eq!(command, redis::pack_command(parts));
    let list = parts.iter().cloned().map(Value::Text).collect();
    match decode(&command) {
        Ok(Some((value, length))) => {
            assert_eq!((value, length), (Value::List(list), command.len()));
        }
        other => panic!("{other:?}"),
    }
}
