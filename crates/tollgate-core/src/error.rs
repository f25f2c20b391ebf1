//! Errors: what was wrong, and what would be right.

use std::{error::Error, fmt};

/// The most names that an error lists.
const MOST_NAMES: usize = 20;

/// A rule that cannot be used.
///
/// It is returned by the call that received the rule, names the rule, repeats the input, and says what would be right.
#[derive(Clone, PartialEq, Eq)]
pub struct RuleError {
    rule: Option<String>,
    kind: RuleErrorKind,
    message: String,
}

/// What kind of mistake a [`RuleError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleErrorKind {
    /// The rule's name, or that of its units.
    Name,
    /// The numbers of a quota.
    Quota,
    /// A cost that no request could ever pay.
    Cost,
    /// A mode or a threshold that does not fit the rule it refers to.
    Mode,
    /// A plan.
    Plan,
    /// A wait that the rule's quota cannot have.
    Wait,
    /// A debt that the rule's quota cannot have.
    Debt,
    /// Credits that the rule cannot have, or a grant that cannot be.
    Credits,
    /// A block that would never end, never begin, or that the rule's quota cannot have.
    Block,
    /// Ids that could not be kept, or that the rule's quota cannot have.
    Idempotency,
    /// Whom the rule counts: its extractor.
    Key,
    /// The rules do not fit together, a setting of a layer cannot work, or there is no rule or plan of a name.
    RuleSet,
    /// The rules do not fit to those that other limiters and layers have on the same store: a name is in use with another
    /// quota.
    Conflict,
    /// The store cannot serve the rule, or does not decide at once.
    Store,
    /// As many different quotas as there are numbers were brought along by checks of a rule: the rule's own quota is left.
    TooManyQuotas,
}

impl RuleError {
    /// An error about `rule`.
    pub fn new(kind: RuleErrorKind, rule: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            rule: Some(rule.into()),
            kind,
            message: message.into(),
        }
    }

    /// An error about the rules as a whole.
    pub fn general(kind: RuleErrorKind, message: impl Into<String>) -> Self {
        Self {
            rule: None,
            kind,
            message: message.into(),
        }
    }

    /// There is no `what` of this name; `known` are those that there are.
    pub fn unknown<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        // There may be thousands.
        let mut known: Vec<_> = known.into_iter().collect();
        let meant = did_you_mean(name, known.iter().copied());
        let more = known.len().saturating_sub(MOST_NAMES);
        known.truncate(MOST_NAMES);
        let known: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
        let expected = match &known[..] {
            [] => "there is none".to_owned(),
            [only] => format!("expected {only}"),
            _ => format!("expected one of {}", known.join(", ")),
        };
        let mut message = format!("unknown {what} {name:?}; {expected}");
        if more > 0 {
            message.push_str(&format!(" and {more} more"));
        }
        if let Some(meant) = meant {
            message.push_str(&format!("; did you mean {meant:?}?"));
        }
        Self::general(RuleErrorKind::RuleSet, message)
    }

    /// What the mistake is about.
    #[must_use]
    pub fn kind(&self) -> RuleErrorKind {
        self.kind
    }

    /// What is wrong, without the name of the rule.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The name of the rule, where it is about one.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }
}

/// The most characters of a wrong name that are displayed.
const MOST_OF_NAME: usize = 128;

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            // A name may be the reason, and as long as somebody likes.
            Some(rule) if rule.len() > MOST_OF_NAME => {
                let begin: String = rule.chars().take(MOST_OF_NAME).collect();
                write!(f, "rule {begin:?}…: {}", self.message)
            }
            Some(rule) => write!(f, "rule {rule:?}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

// As it is displayed: it comes out of `main`.
crate::debug_fields!(RuleError as Display);

impl Error for RuleError {}

/// A store that could not carry out a command outside of a decision, such as a reset.
///
/// Decisions never end in an error: a check that could not be decided has the outcome
/// [`Failed`](crate::Outcome::Failed), and the rule's own answer to a store failure applies.
#[must_use]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
}

/// How a [`StoreError`] came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No answer came, in time or because the connection broke; whether the command ran is not known.
    Timeout,
    /// The store is unreachable; the command did not run.
    Unavailable,
    /// Too many commands are waiting for the store; this one did not run.
    Overloaded,
    /// The store refuses the command until its configuration changes.
    Misconfigured,
    /// The store sent an unexpected reply.
    Protocol,
    /// There is nothing left to settle of a [reservation](crate::types::Reservation): it was settled or cancelled before, its term
    /// has ended, the store has lost it, or a rule is gone or has another algorithm. Its units stay used.
    Gone,
    /// The text of a [reservation](crate::types::Reservation) was cut or changed, or is that of another store or secret. Nothing
    /// has happened to the reservation.
    Foreign,
    /// The store is well and refuses what was asked, such as a grant that has ended already.
    Refused,
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// How it came about.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same command may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Timeout | StoreErrorKind::Unavailable | StoreErrorKind::Overloaded
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// As it is displayed: it comes out of `main`.
crate::debug_fields!(StoreError as Display);

impl Error for StoreError {}

// The known name that a misspelt one probably stands for.

/// The one of `known` that `word` probably misspells, if any is close: at most a third of its letters differ. Case does
/// not count. For the errors of crates that read names from text.
///
/// ```
/// use tollgate_core::store::did_you_mean;
///
/// assert_eq!(did_you_mean("slidng_window", ["fixed_window", "sliding_window"]), Some("sliding_window"));
/// assert_eq!(did_you_mean("Gold", ["free", "gold"]), Some("gold"));
/// assert_eq!(did_you_mean("carrot", ["free", "gold"]), None);
/// ```
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = lower(word)?;
    let distances = known.into_iter().filter_map(|name| {
        let lower = lower(name)?;
        let longer = word.chars().count().max(lower.chars().count());
        // How many letters have to be inserted, removed, replaced, or swapped with the next one.
        let distance = strsim::osa_distance(&word, &lower);
        // Of two letters none may differ, or every unit of time would be a misspelling of every other.
        (distance <= longer / 3).then_some((distance, name))
    });
    distances
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The longest word that is compared, in letters: no name is longer, and a comparison takes the product of the two lengths.
const LONGEST: usize = 64;

/// `None` if it is too long to be a misspelt name.
fn lower(word: &str) -> Option<String> {
    let is_short = word.chars().nth(LONGEST).is_none();
    is_short.then(|| word.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_comes_out_of_main_is_printed_as_it_is_displayed() {
        let unknown = RuleError::unknown("rule", "a", ["b"]);
        let rule = RuleError::new(RuleErrorKind::Cost, "api", "a cost of 0");
        let quota = crate::quota::Quota::per_second(0).validate();
        let store = StoreError::new(StoreErrorKind::Timeout, "no answer in 50 ms");
        let errors: [(String, String); 5] = [
            (format!("{unknown:?}"), unknown.to_string()),
            (format!("{rule:?}"), rule.to_string()),
            (
                format!("{quota:?}"),
                quota
                    .map_err(|error| error.to_string())
                    .map_or_else(|text| format!("Err({text})"), |()| String::new()),
            ),
            (format!("{store:?}"), store.to_string()),
            (
                format!("{:?}", crate::wait_queue::WaitError::from(unknown.clone())),
                unknown.to_string(),
            ),
        ];
        for (printed, displayed) in errors {
            assert_eq!(printed, displayed);
        }
    }

    #[test]
    fn the_closest_name_is_meant_and_far_ones_are_not() {
        let names = ["enforce", "shadow", "off"];
        assert_eq!(did_you_mean("shaddow", names), Some("shadow"));
        assert_eq!(did_you_mean("OFF", names), Some("off"));
        assert_eq!(did_you_mean("ofrence", names), None);
        assert_eq!(did_you_mean("efnorce", names), Some("enforce"));
        assert_eq!(did_you_mean("of", names), Some("off"));
        assert_eq!(did_you_mean("on", names), None);
        assert_eq!(did_you_mean("s", ["m", "h"]), None);
        assert_eq!(did_you_mean("", names), None);
        assert_eq!(did_you_mean(&"shadow".repeat(100), names), None);
    }
}
