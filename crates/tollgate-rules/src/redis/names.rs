//! Names in Redis.

use tollgate_core::{RuleError, RuleErrorKind};

/// The longest namespace, as stores have it.
const LONGEST: usize = 64;

/// The names of a namespace. No state of a limit has them: those end in a number.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) namespace: String,
    pub(crate) document: String,
    pub(crate) pushed: String,
    pub(crate) in_force: String,
    pub(crate) said: String,
    pub(crate) last_seen: String,
    pub(crate) documents: String,
    pub(crate) audit: String,
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
        let name = |part: &str| format!("{{{namespace}}}:rules{part}");
        Ok(Self {
            namespace: namespace.to_owned(),
            document: name(""),
            pushed: name(":pushed"),
            in_force: name(":in_force"),
            said: name(":said"),
            last_seen: name(":last_seen"),
            documents: name(":documents"),
            audit: name(":audit"),
        })
    }

    /// The channel on which pushes are published.
    pub(crate) fn channel(&self) -> &str {
        &self.document
    }
}
