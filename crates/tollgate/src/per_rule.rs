//! A value per rule of a rule set.

use std::sync::Arc;

/// A value for each rule of a rule set, by its index. In pieces, so that rules that take the place of others share those in which
/// nothing has changed: the change of one rule of thousands copies one piece.
#[derive(Debug)]
pub(crate) struct PerRule<T>(Box<[Arc<[T]>]>);

/// The rules of a piece.
const PIECE: usize = 64;

impl<T> PerRule<T> {
    /// The values of `rules` rules. A piece is that of `before` if all of its rules are the same, which `is_same` says of an index
    /// in both.
    pub(crate) fn new(
        rules: usize,
        before: Option<&Self>,
        is_same: impl Fn(usize) -> bool,
        make: impl Fn(usize) -> T,
    ) -> Self {
        let piece = |first: usize| {
            let of_piece = first..(first + PIECE).min(rules);
            let kept = before.and_then(|before| before.0.get(first / PIECE));
            let kept = kept.filter(|kept| kept.len() == of_piece.len());
            match kept.filter(|_| of_piece.clone().all(&is_same)) {
                Some(kept) => Arc::clone(kept),
                None => of_piece.map(&make).collect(),
            }
        };
        Self((0..rules).step_by(PIECE).map(piece).collect())
    }

    /// The value of the rule at this index.
    #[inline]
    pub(crate) fn get(&self, rule: usize) -> Option<&T> {
        self.0.get(rule / PIECE)?.get(rule % PIECE)
    }

    /// All of them, in the order of the rules.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|piece| piece.iter())
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for PerRule<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_shared_where_none_of_its_rules_has_changed() {
        let before = PerRule::new(150, None, |_| true, |rule| rule);
        let all: Vec<usize> = before.iter().copied().collect();
        assert_eq!(all, (0..150).collect::<Vec<_>>());
        for (rules, changed, kept) in [
            (150, None, [true, true, true]),
            (150, Some(63), [false, true, true]),
            (150, Some(64), [true, false, true]),
            (150, Some(149), [true, true, false]),
            (149, None, [true, true, false]),
            (151, None, [true, true, false]),
        ] {
            let is_same = |rule| Some(rule) != changed;
            let after = PerRule::new(rules, Some(&before), is_same, |rule| rule + 1_000);
            for rule in 0..rules {
                let anew = if kept[rule / 64] { 0 } else { 1_000 };
                assert_eq!(after.get(rule), Some(&(rule + anew)), "{rules} {changed:?}");
            }
            assert_eq!(after.get(rules), None);
        }
        assert!(PerRule::<u8>::default().is_empty() && !before.is_empty());
    }
}
