//! What a console looks at.

use tollgate::{Limiter, LiveLimiter, RateLimitLayer};

/// A layer, or a limiter of workers.
#[derive(Clone)]
pub(crate) enum Source {
    Layer(RateLimitLayer),
    Limiter(LiveLimiter),
}

impl Source {
    /// The limiter in force.
    pub(crate) fn limiter(&self) -> Limiter {
        match self {
            Self::Layer(layer) => layer.limiter(),
            Self::Limiter(limiter) => limiter.limiter(),
        }
    }
}
