//! That a rule keeps its top keys, as the rule says.

use std::{fmt, sync::Arc};

use crate::key::KeyBuf;

/// How an application calls a key.
pub(crate) type LabelFn = dyn Fn(&KeyBuf) -> String + Send + Sync;

/// That a rule keeps its top keys, and how they are called. Two are equal if both have labels or neither.
#[derive(Clone, Default)]
pub(crate) struct TopKeysSetting {
    label: Option<Arc<LabelFn>>,
}

impl TopKeysSetting {
    pub(crate) fn labelled(label: impl Fn(&KeyBuf) -> String + Send + Sync + 'static) -> Self {
        Self {
            label: Some(Arc::new(label)),
        }
    }

    /// What calls a key, if anything does.
    pub(crate) fn label(&self) -> Option<&Arc<LabelFn>> {
        self.label.as_ref()
    }

    pub(crate) fn has_label(&self) -> bool {
        self.label.is_some()
    }
}

impl PartialEq for TopKeysSetting {
    fn eq(&self, other: &Self) -> bool {
        self.label.is_some() == other.label.is_some()
    }
}

impl Eq for TopKeysSetting {}

impl fmt::Debug for TopKeysSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.label.is_some() {
            "TopKeys(labelled)"
        } else {
            "TopKeys"
        };
        f.write_str(what)
    }
}
