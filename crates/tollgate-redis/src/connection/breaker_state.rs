//! Where the breaker of a node stands.

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Every request goes to the server, whether it answers or not: enough of them have to fail before it opens.
    Closed,
    /// No request goes to the server.
    Open,
    /// No request goes to the server, and probes are answered.
    Probing,
    /// Probes were answered, and a share of the requests goes to the server.
    #[non_exhaustive]
    Ramping {
        /// The share.
        percent: u8,
    },
}

impl BreakerState {
    /// The share of requests that goes to the server, in percent.
    #[must_use]
    pub fn share(&self) -> u8 {
        match self {
            Self::Closed => 100,
            Self::Open | Self::Probing => 0,
            Self::Ramping { percent } => *percent,
        }
    }
}
