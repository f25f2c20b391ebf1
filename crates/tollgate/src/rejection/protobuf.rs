//! The subset of protobuf that a denial needs, without a library: a feature must not change a response.

use std::time::Duration;

use smallvec::SmallVec;

/// A message in the binary format. Fields that are zero or empty are left out, as in proto3.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(SmallVec<[u8; 96]>);

impl Message {
    /// An empty message with room for this many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(SmallVec::with_capacity(bytes))
    }

    pub(super) fn uint(mut self, field: u8, value: u64) -> Self {
        if value != 0 {
            self.tag(field, 0);
            self.varint(value);
        }
        self
    }

    pub(super) fn text(self, field: u8, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        self.bytes(field, value.as_bytes())
    }

    /// A nested message is written even if it is empty.
    pub(super) fn message(self, field: u8, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// Appends the fields of another message.
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// `field` is below 16, so that a tag is a byte.
    fn tag(&mut self, field: u8, wire_type: u8) {
        debug_assert!(field < 16);
        self.0.push(field << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// `google.protobuf.Any` with a message: its URL begins with `type.googleapis.com/`.
pub(super) fn any(type_url: &str, message: &Message) -> Message {
    Message::default().text(1, type_url).message(2, message)
}

/// `google.rpc.RetryInfo`, exact.
pub(super) fn retry_info(wait: Duration) -> Message {
    let duration = Message::default()
        // Capped at protobuf's limit of 10 000 years.
        .uint(1, wait.as_secs().min(315_576_000_000))
        .uint(2, wait.subsec_nanos().into());
    Message::default().message(1, &duration)
}
