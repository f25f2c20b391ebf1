//! Several extractors, one key.

use http::request::Parts;
use tollgate_core::{KeyBuf, Pending};

use crate::key::extractor::{Extracted, KeyExtractor, NoKey};

macro_rules! tuple {
    ($($extractor:ident $field:tt),+) => {
        /// One key of all parts, in their order. If one is missing, there is no key.
        ///
        /// Look-ups run one after the other.
        impl<$($extractor: KeyExtractor),+> KeyExtractor for ($($extractor,)+) {
            fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
                in_order(&[$(&self.$field),+], head, key)
            }

            fn validate(&self) -> Result<(), String> {
                $(self.$field.validate()?;)+
                Ok(())
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

fn in_order(extractors: &[&dyn KeyExtractor], head: &Parts, key: &mut KeyBuf) -> Extracted {
    if !key.is_empty() {
        // A tuple inside of a tuple: our parts must stay apart, because they may have to travel with a look-up.
        let mut own = KeyBuf::new();
        let found = in_order(extractors, head, &mut own);
        if matches!(found, Extracted::Key) {
            key.append(&own);
        }
        return found;
    }
    for (i, extractor) in extractors.iter().enumerate() {
        let start = key.len();
        match extractor.extract(head, key) {
            Extracted::Key => {}
            Extracted::Nothing(why) => {
                key.clear();
                return Extracted::Nothing(why);
            }
            Extracted::Later(later) => {
                key.truncate(start);
                return with_look_up(std::mem::take(key), later, &extractors[i + 1..], head);
            }
        }
    }
    Extracted::Key
}

/// The head is gone when the look-up ends, so everything else is read from it now.
fn with_look_up(
    before: KeyBuf,
    later: Pending<Result<KeyBuf, NoKey>>,
    after: &[&dyn KeyExtractor],
    head: &Parts,
) -> Extracted {
    let mut rest = KeyBuf::new();
    let rest_later = match in_order(after, head, &mut rest) {
        Extracted::Key => None,
        Extracted::Nothing(why) => return Extracted::Nothing(why),
        Extracted::Later(rest) => Some(rest),
    };
    Extracted::Later(Pending::new(async move {
        let mut key = before;
        key.append(&later.await?);
        match rest_later {
            Some(rest) => key.append(&rest.await?),
            None => key.append(&rest),
        }
        Ok(key)
    }))
}
