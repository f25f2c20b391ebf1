//! Numbers of units: `100`, `1_000_000`.

use crate::{
    quota::MAX_UNITS,
    quota_text::{error::Wrong, word::Word},
};

/// A number of units: digits, which may be grouped by `_`.
pub(super) fn units(word: &Word<'_>) -> Result<u64, Wrong> {
    let digits: String = word.text.chars().filter(|c| *c != '_').collect();
    if digits.is_empty()
        || word.text.starts_with('_')
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        let message = match word.text {
            "" => "the number of units is missing; write it as 100".to_owned(),
            _ => format!(
                "{} is not a number of units; write a whole number as 100 or 1_000",
                word.quoted()
            ),
        };
        return Err(Wrong::new(word.span(), message));
    }
    match digits.parse() {
        Ok(units) if units <= MAX_UNITS => Ok(units),
        _ => Err(Wrong::new(
            word.span(),
            format!(
                "{} units are above {MAX_UNITS}; count in larger units",
                word.quoted()
            ),
        )),
    }
}
