//! Servers of the test's own, and what they are made to do.

use std::{fs, path::Path, thread};

use tempfile::TempDir;
use tollgate_test_servers::blocking_server::{PAUSE, POLLS};

pub(crate) use tollgate_test_servers::blocking_server::RedisServer;

/// A sentinel that watches a master, which it calls `limits`; with what it has read, and writes anew.
pub(crate) fn start_sentinel(master: &RedisServer) -> (RedisServer, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sentinel.conf");
    let settings = format!("sentinel monitor limits 127.0.0.1 {} 1\n", master.port());
    fs::write(&file, settings).expect("a file");
    let file = file.to_str().expect("a plain name");
    (RedisServer::start(&[file, "--sentinel"]), folder)
}

/// Writes until the server refuses.
pub(crate) fn fill(server: &RedisServer) {
    // Small values, so that it is full to the last of them. A script is refused as a whole.
    let script = "for n = 1, 200 do if redis.pcall('SET', KEYS[1] .. n, ARGV[1]).err then return 1 end end return 0";
    let value = "x".repeat(1_000);
    let mut batches = 0..1_000_u32;
    let refused = batches.any(|batch| {
        let key = format!("filler:{batch}:");
        server.ask::<u32>(&["EVAL", script, "1", &key, &value]) == 1
    });
    assert!(refused, "it has no bound");
}

/// Waits until a command is answered by a text with these words.
pub(crate) fn until(server: &RedisServer, command: &[&str], words: &str) {
    for _ in 0..POLLS {
        let answer: redis::Value = server.ask(command);
        if format!("{answer:?}").contains(words) {
            return;
        }
        thread::park_timeout(PAUSE);
    }
    panic!("{command:?} was never answered by {words:?}");
}

/// One of the servers in `target/servers`.
pub(crate) fn server_program(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
    let program = folder.join(name);
    assert!(
        program.exists(),
        "{} is not there; ./test.sh takes it from PyPI",
        program.display()
    );
    program.display().to_string()
}
