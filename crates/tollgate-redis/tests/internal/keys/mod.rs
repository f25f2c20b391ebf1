//! Keys on a server: a change of secrets, a cap on new keys, and what lies in one slot.

mod created;
mod flood;
mod names;
mod resets;
mod rotation;
pub(in crate::internal_tests) mod server;

use std::time::Duration;

use crate::Secret;

const NOW: u64 = 1_700_000_123_456_789;

/// States outlive the tests, by whatever clock.
const MARGIN: Duration = Duration::from_secs(1_000_000);

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32]).expect("32 bytes")
}
