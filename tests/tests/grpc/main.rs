//! gRPC as its users meet it: real servers and clients of tonic, and bodies by hand where the wire hides too much.

mod messages;

use tollgate::{ManualClock, MemoryStore};

/// Noon of some day, so that windows begin where the tests do.
const NOON: u64 = 1_767_268_800_000_000;

/// A store whose time moves only when told to.
fn still() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new(NOON);
    (MemoryStore::builder().clock(&clock).build(), clock)
}
