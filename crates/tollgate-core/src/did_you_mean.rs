//! The known name that a misspelt one probably stands for.

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
#[must_use]
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = letters(word)?;
    let distances = known.into_iter().filter_map(|name| {
        let name_letters = letters(name)?;
        let longer = word.len().max(name_letters.len());
        let distance = distance(&word, &name_letters);
        // Of two letters none may differ, or every unit of time would be a misspelling of every other.
        (distance <= longer / 3).then_some((distance, name))
    });
    distances
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The longest word that is compared: no name is longer, and a comparison takes the product of the two lengths.
const LONGEST: usize = 64;

/// `None` if there are too many to be a misspelt name.
fn letters(word: &str) -> Option<Vec<char>> {
    let letters = word.chars().flat_map(char::to_lowercase);
    let letters: Vec<char> = letters.take(LONGEST + 1).collect();
    (letters.len() <= LONGEST).then_some(letters)
}

/// How many letters have to be inserted, removed, replaced, or swapped with the next one (the optimal string alignment
/// distance).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_more_less_other_or_swapped_counts_once() {
        let between = |a: &str, b: &str| {
            let letters = |word: &str| word.chars().collect::<Vec<_>>();
            distance(&letters(a), &letters(b))
        };
        for (a, b, distance) in [
            ("", "", 0),
            ("", "abc", 3),
            ("gold", "gold", 0),
            ("gold", "god", 1),
            ("gold", "goold", 1),
            ("gold", "bold", 1),
            ("gold", "glod", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(between(a, b), distance, "{a} {b}");
            assert_eq!(between(b, a), distance, "{b} {a}");
        }
    }

    #[test]
    fn the_closest_name_is_meant_and_far_ones_are_not() {
        let names = ["enforce", "shadow", "off"];
        assert_eq!(did_you_mean("shaddow", names), Some("shadow"));
        assert_eq!(did_you_mean("OFF", names), Some("off"));
        assert_eq!(did_you_mean("of", names), Some("off"));
        assert_eq!(did_you_mean("on", names), None);
        assert_eq!(did_you_mean("s", ["m", "h"]), None);
        assert_eq!(did_you_mean("", names), None);
        assert_eq!(did_you_mean(&"shadow".repeat(100), names), None);
    }
}
