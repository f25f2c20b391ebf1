//! What is done at the end of a response's body.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use http_body::Frame;
use tollgate_core::store::HeldSlots;

use crate::rate_limit::settlement::TrailersSettlement;

/// What is done at the end of a response's body. If the body is dropped before, its slots go back and nothing is settled.
pub(crate) enum AtEnd {
    /// Slots go back.
    Release(HeldSlots),
    /// The request is settled, once, and then its slots go back.
    Settle(Mutex<Option<Box<TrailersSettlement>>>),
    /// The request is no longer in flight.
    Leave(Place),
}

/// A place among the requests in flight, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(pub(crate) Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AtEnd {
    /// The body has ended without a frame: a server drops it then, and does not poll it. Slots go back with the body.
    pub(crate) fn settle_at_once(&self) {
        if let Self::Settle(settlement) = self {
            let taken = settlement
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(settlement) = taken {
                settlement.settle(None::<&Result<Frame<()>, Infallible>>);
            }
        }
    }

    /// The body has ended, with an error or with this frame, if it has trailers.
    pub(crate) fn end<E>(self, last: Option<&Result<Frame<impl Sized>, E>>) {
        match self {
            Self::Release(slots) => drop(slots),
            Self::Leave(place) => drop(place),
            Self::Settle(settlement) => {
                let settlement = settlement.into_inner();
                if let Some(settlement) = settlement.unwrap_or_else(PoisonError::into_inner) {
                    settlement.settle(last);
                }
            }
        }
    }
}

tollgate_core::debug_fields!(AtEnd);
