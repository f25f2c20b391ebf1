//! The selection of header fields.

use std::{fmt, ops::BitOr};

use tollgate_core::RuleError;

use crate::diagnostics::wrong_setting;

/// The quota fields of a response. Combine styles with `|`.
///
/// See the [module documentation](crate::header) for the fields of each and which to use.
///
/// ```
/// use tollgate::header::HeaderStyle;
///
/// let style = HeaderStyle::DRAFT_11 | HeaderStyle::X_RATELIMIT_DELTA;
/// assert_eq!(format!("{style:?}"), "DRAFT_11 | X_RATELIMIT_DELTA");
/// assert_eq!(style | HeaderStyle::NONE, style);
/// ```
///
/// Some cannot be combined, because they write a field in two ways: [`DRAFT_11`](Self::DRAFT_11) with
/// [`DRAFT_7`](Self::DRAFT_7) or [`DRAFT_6`](Self::DRAFT_6), and the two forms of `X-RateLimit-Reset`. They are
/// an error in [`RateLimitLayer::headers`](crate::RateLimitLayer::headers).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderStyle(u8);

impl HeaderStyle {
    /// No quota fields. A denial still has `Retry-After`.
    pub const NONE: Self = Self(0);
    /// `RateLimit` and `RateLimit-Policy` as lists of named policies, the syntax of draft-8 to draft-11.
    pub const DRAFT_11: Self = Self(1);
    /// `RateLimit` as a dictionary, and `RateLimit-Policy`, as in draft-7.
    pub const DRAFT_7: Self = Self(1 << 1);
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` and `-Policy`, as in draft-4 to draft-6.
    pub const DRAFT_6: Self = Self(1 << 2);
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the reset as seconds since the Unix epoch.
    pub const X_RATELIMIT_EPOCH: Self = Self(1 << 3);
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the reset as seconds from now.
    pub const X_RATELIMIT_DELTA: Self = Self(1 << 4);

    const NAMES: [(Self, &str); 5] = [
        (Self::DRAFT_11, "DRAFT_11"),
        (Self::DRAFT_7, "DRAFT_7"),
        (Self::DRAFT_6, "DRAFT_6"),
        (Self::X_RATELIMIT_EPOCH, "X_RATELIMIT_EPOCH"),
        (Self::X_RATELIMIT_DELTA, "X_RATELIMIT_DELTA"),
    ];

    /// The fields of both, as `|` does; usable in constants.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Rejects styles that write a field in two ways.
    pub(crate) fn validate(self) -> Result<(), RuleError> {
        for (a, b, why) in [
            (Self::DRAFT_11, Self::DRAFT_7, "write RateLimit"),
            (Self::DRAFT_11, Self::DRAFT_6, "write RateLimit-Policy"),
            (
                Self::X_RATELIMIT_EPOCH,
                Self::X_RATELIMIT_DELTA,
                "write X-RateLimit-Reset",
            ),
        ] {
            if self.has(a) && self.has(b) {
                return Err(wrong_setting(format!(
                    "the header styles {a:?} and {b:?} both {why}, each in its own way; take one of them"
                )));
            }
        }
        Ok(())
    }
}

impl BitOr for HeaderStyle {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

impl fmt::Debug for HeaderStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let styles = Self::NAMES
            .into_iter()
            .filter(|(style, _)| self.has(*style));
        let names: Vec<_> = styles.map(|(_, name)| name).collect();
        match names.is_empty() {
            true => f.write_str("NONE"),
            false => f.write_str(&names.join(" | ")),
        }
    }
}
