//! One key of several parts: tuples of extractors.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, Pending};

use crate::{
    head::Head,
    key::{
        extractor::{Extracted, KeyExtractor},
        look_ups::{Found, LookUps},
    },
};

macro_rules! tuple {
    ($($extractor:ident $field:tt),+) => {
        /// One key of all parts, in order. If one is missing, there is no key.
        ///
        /// Look-ups run concurrently.
        impl<$($extractor: KeyExtractor),+> KeyExtractor for ($($extractor,)+) {
            fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
                in_order(&[$(&self.$field),+], head, key)
            }

            fn subject_type(&self) -> Cow<'static, str> {
                let parts = [$(self.$field.subject_type()),+];
                parts.join("+").into()
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

fn in_order(extractors: &[&dyn KeyExtractor], head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
    if !key.is_empty() {
        // A nested tuple: collect our parts separately, because a look-up may have to take them along.
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

/// Reads everything else from the head now, because it is gone when the look-up ends.
fn with_look_up(
    before: KeyBuf,
    later: Pending<Found>,
    after: &[&dyn KeyExtractor],
    head: &Head<'_>,
) -> Extracted {
    let (mut look_ups, mut rest) = (LookUps::default(), KeyBuf::new());
    look_ups.push(0, later);
    match in_order(after, head, &mut rest) {
        Extracted::Key => {}
        Extracted::Nothing(why) => return Extracted::Nothing(why),
        // It has taken the rest along.
        Extracted::Later(later) => look_ups.push(1, later),
    }
    Extracted::Later(Pending::new(async move {
        let mut key = before;
        // Of several without a key, the first says why: that does not depend on timing.
        for (_, found) in look_ups.of_one_key().await {
            key.append(&found?);
        }
        key.append(&rest);
        Ok(key)
    }))
}
