//! What of a rule is written to a ledger, as the rule says.

use std::{fmt, sync::Arc};

use crate::key::KeyBuf;

/// That a rule is durable. Two are equal if both do the same behind a full journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Durable {
    pub(crate) account: AccountFn,
    pub(crate) denies_unwritten: bool,
}

/// How the accounts of a rule are called. All are equal: what a closure does is not known.
#[derive(Clone)]
pub(crate) struct AccountFn(pub(crate) Arc<dyn Fn(&KeyBuf) -> String + Send + Sync>);

/// The longest name of an account, in bytes.
const LONGEST: usize = 200;

impl AccountFn {
    /// The account of a key: as much of its name as a ledger writes. Clients may send long keys.
    pub(crate) fn of(&self, key: &KeyBuf) -> Arc<str> {
        let name = (self.0)(key);
        let mut end = name.len().min(LONGEST);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name[..end].into()
    }
}

impl PartialEq for AccountFn {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for AccountFn {}

impl fmt::Debug for AccountFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountFn")
    }
}
