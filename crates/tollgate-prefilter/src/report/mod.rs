//! Local usage: a process admits what the store last said is left, and reports it afterwards. It never holds more than
//! `max_unreported` unreported units, so N processes together exceed the limit by at most `N · max_unreported`.

pub(crate) mod local_usage;
pub(crate) mod terms;
