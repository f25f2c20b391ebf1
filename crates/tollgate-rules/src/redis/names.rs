//! Names in Redis.

use tollgate_core::{RuleError, RuleErrorKind};

/// The longest namespace, as stores have it.
const LONGEST: usize = 64;

/// The names of a namespace. No state of a limit has them: those end in a number.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) namespace: String,
}

impl Names {
    /// # Errors
    ///
    /// No namespace.
    pub(crate) fn new(namespace: &str) -> Result<Self, RuleError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        if !(1..=LONGEST).contains(&namespace.len()) || !namespace.bytes().all(fits) {
            return Err(RuleError::general(
                RuleErrorKind::Store,
                format!(
                    "{namespace:?} is no namespace; take the name of the service, in 1 to {LONGEST} letters, digits and _ . : -"
                ),
            ));
        }
        Ok(Self {
            namespace: namespace.to_owned(),
        })
    }

    /// The name of what belongs to the rules, or of themselves where `part` is empty.
    pub(crate) fn key(&self, part: &str) -> String {
        format!("{{{}}}:rules{part}", self.namespace)
    }
}
