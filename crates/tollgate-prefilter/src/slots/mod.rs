//! Slots: a limit on how many requests of a key run at once, in all processes together. The store counts them; a process is known
//! to it for a term after its last message, which says what it has in use. If it crashes, its slots are free then.
//!
//! `docs/design/slots.md` has the protocol, and what it promises.

pub(crate) mod slot_holder;
pub(crate) mod slot_message;
pub(crate) mod state_slots;
