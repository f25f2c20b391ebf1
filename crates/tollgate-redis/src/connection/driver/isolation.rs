//! Calls that would be refused together with others, and so go alone for a while.

use std::time::Duration;

use tokio::time::Instant;

use crate::connection::request::Request;

/// How long they go alone. Then one command is tried again with all, and costs one more if it is refused again.
const ISOLATED_FOR: Duration = Duration::from_secs(10);

/// What has spoiled a command for the calls that travelled with it: the keys of a rule that the user may not touch, or a
/// slot that is on the move.
///
/// Both are kept as bits, and several rules or slots may share a bit. A call that goes alone because of another one costs a little
/// more, and nothing else.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    rules: u64,
    slots: u64,
    until: Option<Instant>,
}

impl Isolation {
    /// Whether any call is to go alone now.
    pub(super) fn is_any(&mut self) -> bool {
        let is_over = self.until.is_some_and(|until| until <= Instant::now());
        if is_over {
            *self = Self::default();
        }
        self.until.is_some()
    }

    /// Whether this one is, if any is.
    pub(super) fn has(&self, request: &Request) -> bool {
        request.rules() & self.rules != 0 || bit(request.slot()) & self.slots != 0
    }

    /// The user may not touch the keys of a call that went alone.
    pub(super) fn add_rules_of(&mut self, request: &Request) {
        self.rules |= request.rules();
        self.begin();
    }

    /// The slot of calls that travelled together is on the move.
    pub(super) fn add_slot_of(&mut self, request: &Request) {
        self.slots |= bit(request.slot());
        self.begin();
    }

    /// What is added later ends with the rest, so that bits do not gather.
    fn begin(&mut self) {
        self.until
            .get_or_insert_with(|| Instant::now() + ISOLATED_FOR);
    }
}

fn bit(slot: u16) -> u64 {
    1 << (slot % 64)
}
