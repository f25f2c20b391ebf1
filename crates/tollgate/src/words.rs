//! Words that describe a request besides its head.

use std::fmt;

use smallvec::SmallVec;

/// Words that describe a request besides its head: an extension of the head, for conditions [on them](crate::siblings::words_are). A
/// server that proxies ask puts the words of the proxy there.
///
/// ```
/// use tollgate::{Head, siblings::{Words, words_are}};
///
/// let condition = words_are([Some("sms".to_owned()), None]);
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// head.extensions.insert(Words::from_iter(["sms", "+441234"]));
/// assert!(condition(&Head::from(&head)));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Words {
    text: String,
    /// Where each of them ends.
    ends: SmallVec<[usize; 16]>,
}

impl Words {
    /// The words, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        let mut begin = 0;
        self.ends
            .iter()
            .map(move |end| &self.text[std::mem::replace(&mut begin, *end)..*end])
    }
}

impl<W: AsRef<str>> Extend<W> for Words {
    fn extend<I: IntoIterator<Item = W>>(&mut self, words: I) {
        for word in words {
            self.text.push_str(word.as_ref());
            self.ends.push(self.text.len());
        }
    }
}

impl<W: AsRef<str>> FromIterator<W> for Words {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Self {
        let mut all = Self {
            // Most have no more.
            text: String::with_capacity(128),
            ends: SmallVec::new(),
        };
        all.extend(words);
        all
    }
}

/// Without the words, which may be clients.
impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.ends.len())
    }
}
