//! What is done at the end of a response's body.

use std::fmt;

use http_body::Frame;
use tollgate_core::HeldSlots;

use crate::rate_limit::settlement::TrailersSettlement;

/// What is done at the end of a response's body. If the body is dropped before, its slots go back and nothing is settled.
pub(crate) struct AtEnd {
    settlement: Option<TrailersSettlement>,
    slots: Option<HeldSlots>,
}

impl AtEnd {
    /// `None` if there is nothing to do.
    #[inline]
    pub(crate) fn of(
        settlement: Option<TrailersSettlement>,
        slots: Option<HeldSlots>,
    ) -> Option<Box<Self>> {
        if settlement.is_none() && slots.is_none() {
            return None;
        }
        Some(Box::new(Self { settlement, slots }))
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
