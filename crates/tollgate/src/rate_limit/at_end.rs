//! What is done at the end of a response's body.

use std::fmt;

use http_body::Frame;
use tollgate_core::store::HeldSlots;

use crate::rate_limit::settlement::TrailersSettlement;

/// What is done at the end of a response's body. If the body is dropped before, its slots go back and nothing is settled.
pub(crate) struct AtEnd {
    settlement: Option<Box<TrailersSettlement>>,
    slots: Option<HeldSlots>,
}

impl AtEnd {
    /// Slots go back.
    pub(crate) fn with_slots(slots: HeldSlots) -> Box<Self> {
        Box::new(Self {
            settlement: None,
            slots: Some(slots),
        })
    }

    /// The request is settled, and then what was to be done before.
    pub(crate) fn with_settlement(
        settlement: Box<TrailersSettlement>,
        before: Option<Box<Self>>,
    ) -> Box<Self> {
        Box::new(Self {
            settlement: Some(settlement),
            slots: before.and_then(|before| before.slots),
        })
    }

    /// The body has ended, with an error or with this frame, if it has trailers.
    pub(crate) fn end<E>(self, last: Option<&Result<Frame<impl Sized>, E>>) {
        if let Some(settlement) = self.settlement {
            settlement.settle(last);
        }
        drop(self.slots);
    }
}

impl fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtEnd").finish_non_exhaustive()
    }
}
