//! What a call asks, as it is sent.

use std::sync::Arc;

use crate::connection::{
    command::{push_argument, push_count},
    script::Script,
};

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
pub(super) struct Request {
    script: Arc<Script>,
    /// The number of arguments and everything after the hash, as it is sent.
    count: usize,
    tail: Vec<u8>,
}

impl Request {
    pub(super) fn new(
        script: &Arc<Script>,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
    ) -> Self {
        let bytes = keys
            .iter()
            .map(|key| key.as_ref().len() + 16)
            .sum::<usize>()
            + args
                .iter()
                .map(|arg| arg.as_ref().len() + 16)
                .sum::<usize>();
        let mut tail = Vec::with_capacity(bytes + 16);
        push_argument(&mut tail, keys.len().to_string().as_bytes());
        for key in keys {
            push_argument(&mut tail, key.as_ref());
        }
        for arg in args {
            push_argument(&mut tail, arg.as_ref());
        }
        Self {
            script: Arc::clone(script),
            count: 3 + keys.len() + args.len(),
            tail,
        }
    }

    pub(super) fn script(&self) -> &Arc<Script> {
        &self.script
    }

    /// Appends the command: with the text of the script, or with its hash.
    pub(super) fn write(&self, out: &mut Vec<u8>, with_body: bool) {
        push_count(out, self.count);
        if with_body {
            push_argument(out, b"EVAL");
            push_argument(out, self.script.body().as_bytes());
        } else {
            push_argument(out, b"EVALSHA");
            push_argument(out, self.script.sha());
        }
        out.extend_from_slice(&self.tail);
    }
}

/// Appends what lets the next command at a slot that the server is about to receive.
pub(super) fn push_asking(out: &mut Vec<u8>) {
    push_count(out, 1);
    push_argument(out, b"ASKING");
}
