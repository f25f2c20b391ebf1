//! Slots: a limit on how many requests of a key run at once, in all processes together.

pub(crate) mod slot_grantor;
pub(crate) mod slot_holder;
pub(crate) mod slot_message;
pub(crate) mod slot_table;
pub(crate) mod slot_terms;
