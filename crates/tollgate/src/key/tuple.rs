//! One key of several parts: tuples of extractors.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, Pending};

use crate::{
    head::Head,
    key::{
        extractor::{Extracted, KeyExtractor},
        look_ups::LookUps,
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
    // What stands before each look-up. All is read from the head now, because it is gone when they end.
    let (mut look_ups, mut before) = (LookUps::default(), Vec::new());
    for extractor in extractors {
        let start = key.len();
        match extractor.extract(head, key) {
            Extracted::Key => {}
            Extracted::Nothing(why) => {
                key.clear();
                return Extracted::Nothing(why);
            }
            Extracted::Later(later) => {
                key.truncate(start);
                look_ups.push(before.len(), later);
                before.push(std::mem::take(key));
            }
        }
    }
    if before.is_empty() {
        return Extracted::Key;
    }
    let rest = std::mem::take(key);
    Extracted::Later(Pending::new(async move {
        let mut key = KeyBuf::new();
        // Of several without a key, the first says why: that does not depend on timing.
        for (index, found) in look_ups.of_one_key().await {
            key.append(&before[index]);
            key.append(&found?);
        }
        key.append(&rest);
        Ok(key)
    }))
}
