//! For code that makes rules, reads them, or puts others in their place. [`Inspection`] and [`RuleEffect`] are for consoles.

pub use tollgate_core::{Mode, types::RuleChange};

pub use crate::{
    inner_response::InnerResponse,
    rate_limit::{Inspection, RuleEffect},
    rule::KeyedRule,
};
