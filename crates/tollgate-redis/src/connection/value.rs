//! What a server answered.

use smallvec::SmallVec;

/// Integers in a row. The answer to one check, a time and three numbers, needs no memory of its own.
pub(crate) type Integers = SmallVec<[i64; 4]>;

/// An answer, as far as a limiter tells answers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// There is nothing.
    Nil,
    /// A number.
    Integer(i64),
    /// A list that is no part of another and has nothing but integers in it, one at least.
    Integers(Integers),
    /// Either kind of string.
    Text(Vec<u8>),
    /// Any other list.
    List(Vec<Self>),
    /// An error inside of a list, without its mark.
    Error(String),
}

impl Value {
    /// The text, where it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The elements of a list that does not consist of integers.
    pub(super) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }
}
