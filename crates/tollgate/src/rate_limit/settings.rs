//! The settings of a layer: one value, which both layers take.

use std::time::Duration;

use http::StatusCode;

use crate::{
    header::{HeaderStyle, OwnFields},
    key::look_ups,
    protocol::Protocol,
    rate_limit::wait_room::{MAX_HEAD_BYTES, MAX_REQUESTS},
    rejection::Rejection,
};

/// How a layer answers.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) headers: HeaderStyle,
    pub(crate) own_fields: OwnFields,
    pub(crate) hide_quota: bool,
    pub(crate) rejection: Rejection,
    pub(crate) denied_status: StatusCode,
    pub(crate) protocol: Protocol,
    pub(crate) jitter_percent: u8,
    /// Whether the decision is attached whatever the rules are.
    pub(crate) attach_decision: bool,
    pub(crate) count_preflight: bool,
    /// How many requests may wait at once, and how many bytes their heads may have together.
    pub(crate) max_waiting: (usize, usize),
    /// The deadline for all look-ups of a request together.
    pub(crate) look_up_deadline: Duration,
    /// How long a message may wait in the queue. `None`: it does not wait.
    pub(crate) message_wait: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            headers: HeaderStyle::DRAFT_11,
            own_fields: OwnFields::default(),
            hide_quota: false,
            rejection: Rejection::problem(),
            denied_status: StatusCode::TOO_MANY_REQUESTS,
            protocol: Protocol::Auto,
            jitter_percent: 0,
            attach_decision: false,
            count_preflight: false,
            max_waiting: (MAX_REQUESTS, MAX_HEAD_BYTES),
            look_up_deadline: look_ups::DEADLINE,
            message_wait: None,
        }
    }
}

/// What both layers have. The type has a `config: Arc<LiveConfig>`.
macro_rules! live_layer {
    ($layer:ident) => {
        impl $layer {
            fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
                let config = self.config.with(change);
                Self { config }
            }

            /// The minimum number of instances of this service that share the store: while the store fails, each applies its share
            /// of a quota. Default: 1. If the store [knows](tollgate_core::store::RuleStore::instances) of more instances, their
            /// number counts. A store in memory never fails.
            ///
            /// # Errors
            ///
            /// A quota whose share cannot be counted.
            pub fn instances(self, instances: std::num::NonZeroU32) -> Result<Self, RuleError> {
                let config = self.config.with_instances(instances)?;
                Ok(Self { config })
            }

            /// The handle that replaces the rules while requests are served. A request or a call that has begun keeps its rules.
            pub fn handle(&self) -> RulesHandle {
                let rules = Arc::downgrade(&self.config.rules);
                RulesHandle { rules }
            }

            /// The limiter in force, for code outside of requests: the same budgets. Take it anew for each piece of work where the
            /// rules may be [replaced](Self::handle).
            pub fn limiter(&self) -> Limiter {
                self.config.limiter()
            }

            /// Which header fields report the quota to clients: with responses, and by a layer for messages when a call is denied
            /// before its response has begun. Default: [`HeaderStyle::DRAFT_11`](crate::header::HeaderStyle::DRAFT_11).
            ///
            /// # Errors
            ///
            /// Styles that write one field in two ways.
            pub fn headers(self, style: $crate::header::HeaderStyle) -> Result<Self, RuleError> {
                style.validate()?;
                Ok(self.set(|settings| settings.headers = style))
            }

            /// Hides the quota from clients: no rule, limit or remaining units in header fields or bodies, only when to retry. For
            /// log-in routes, where the numbers help to guess.
            ///
            /// Outer layers write no quota fields on such a denial either.
            pub fn hide_quota(self) -> Self {
                self.set(|settings| settings.hide_quota = true)
            }

            /// Adds up to this many percent to each retry time, so that clients that were denied together do not return together.
            /// The same client gets the same time on each request.
            ///
            /// # Errors
            ///
            /// More than 100, which would more than double the wait.
            pub fn retry_after_jitter(self, percent: u8) -> Result<Self, RuleError> {
                if percent > 100 {
                    return Err($crate::diagnostics::wrong_setting(format!(
                        "a jitter of {percent} % would more than double the wait; take 0 to 100, 20 is usual"
                    )));
                }
                Ok(self.set(|settings| settings.jitter_percent = percent))
            }

            /// The deadline for all key look-ups of a request together; they run concurrently. Default: 200 ms. It begins when the
            /// first look-up is pending.
            ///
            /// At the deadline, unfinished look-ups are dropped, and the key of their rule is
            /// [`NoKey::LookUpFailed`](crate::key::NoKey::LookUpFailed):
            ///
            /// | the rule | the request |
            /// | --- | --- |
            /// | [`on_store_error`](tollgate_core::Rule::on_store_error) with `Allow` or `Degraded` | passes the rule uncounted |
            /// | `on_store_error` with `Deny`, or [`Missing::Reject`](crate::Missing::Reject) | gets a 503, in gRPC `UNAVAILABLE` |
            /// | any other, the default | counts with all others that have no key, also with [`Missing::Skip`](crate::Missing::Skip) |
            ///
            /// `tollgate_look_up_failures_total` counts them, and the first failure of a rule is an event at warn level. A custom
            /// extractor returns `LookUpFailed` if its directory fails.
            ///
            /// Outside of tokio there is no deadline. In a tokio runtime built without `enable_time`, a pending look-up fails at
            /// once.
            pub fn look_up_deadline(self, deadline: std::time::Duration) -> Self {
                self.set(|settings| settings.look_up_deadline = deadline)
            }
        }
    };
}

pub(crate) use live_layer;
