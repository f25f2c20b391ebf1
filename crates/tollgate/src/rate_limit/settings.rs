//! The settings of a layer: one value, which both layers take, and their defaults hand on.

use std::{num::NonZeroU32, time::Duration};

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
    /// Whether responses report the time that their request has waited.
    pub(crate) server_timing: bool,
    /// How many requests may wait at once, and how many bytes their heads may have together.
    pub(crate) max_waiting: (usize, usize),
    /// The deadline for all look-ups of a request together.
    pub(crate) look_up_deadline: Duration,
    pub(crate) instances: NonZeroU32,
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
            server_timing: false,
            max_waiting: (MAX_REQUESTS, MAX_HEAD_BYTES),
            look_up_deadline: look_ups::DEADLINE,
            instances: NonZeroU32::MIN,
            message_wait: None,
        }
    }
}

impl Settings {
    /// Whether responses carry the quota's header fields.
    pub(crate) fn shows_quota(&self) -> bool {
        let has_fields = self.headers != HeaderStyle::NONE || !self.own_fields.is_empty();
        !self.hide_quota && has_fields
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
            #[must_use]
            pub fn handle(&self) -> RulesHandle {
                RulesHandle::new(self.config.rules())
            }

            /// The limiter in force, for code outside of requests: the same budgets. Take it anew for each piece of work where the
            /// rules may be [replaced](Self::handle).
            #[must_use]
            pub fn limiter(&self) -> Limiter {
                self.config.limiter()
            }
        }
    };
}

/// The setters that both layers and their defaults have. The type has `set(self, impl FnOnce(&mut Settings)) -> Self`.
macro_rules! common_setters {
    ($layer:ident) => {
        impl $layer {
            /// Which header fields report the quota to clients: with responses, and by a layer for messages when a call is denied
            /// before its response has begun. Default: [`HeaderStyle::DRAFT_11`](crate::header::HeaderStyle::DRAFT_11).
            ///
            /// # Errors
            ///
            /// Styles that write one field in two ways.
            pub fn headers(
                self,
                style: $crate::header::HeaderStyle,
            ) -> Result<Self, tollgate_core::RuleError> {
                $crate::rate_limit::validation::refuse_style(style)?;
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
            pub fn retry_after_jitter(self, percent: u8) -> Result<Self, tollgate_core::RuleError> {
                $crate::rate_limit::validation::refuse_much_jitter(percent)?;
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

/// The setters of a layer for requests and of its defaults.
macro_rules! request_setters {
    ($layer:ident) => {
        impl $layer {
            /// Adds a header field to the responses that report the quota, for clients that expect one which no
            /// [style](crate::header::HeaderStyle) writes: a text in which `{rule}`, `{limit}`, `{window}`, `{remaining}`,
            /// `{used}`, `{reset}` and `{reset_at}` stand for what the rule that is closest to its limit says. Times are in
            /// seconds, and `{reset_at}` since the Unix epoch. Of nested limiters, the inner one's field stays; a field that the
            /// style writes as well is the style's.
            ///
            /// ```
            /// use http::HeaderName;
            /// use tollgate::{
            ///     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, header::HeaderStyle,
            ///     key::client_ip,
            /// };
            ///
            /// let rule = Rule::new("search", Quota::gcra(120, MINUTE)).by(client_ip());
            /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?
            ///     .headers(HeaderStyle::NONE)?
            ///     .header_field(HeaderName::from_static("ratelimit-limit"), "{limit};window={window}")?
            ///     .header_field(HeaderName::from_static("x-ratelimit-used"), "{used}")?;
            /// # Ok::<(), tollgate::RuleError>(())
            /// ```
            ///
            /// # Errors
            ///
            /// A variable that is not known, and what no field may have, such as a line feed.
            pub fn header_field(
                self,
                name: http::HeaderName,
                template: &str,
            ) -> Result<Self, tollgate_core::RuleError> {
                $crate::rate_limit::validation::refuse_no_value(template)?;
                let template = $crate::header::template::Template::parse(template)?;
                Ok(self.set(|settings| {
                    let fields = std::sync::Arc::make_mut(&mut settings.own_fields);
                    fields.retain(|(other, _)| *other != name);
                    fields.push((name, template));
                }))
            }

            /// The response to a denied request. Default: [`Rejection::problem`](crate::Rejection::problem).
            pub fn rejection(self, rejection: $crate::rejection::Rejection) -> Self {
                self.set(|settings| settings.rejection = rejection)
            }

            /// The status of the response to a request over its limit. Default: 429.
            ///
            /// # Errors
            ///
            /// A status below 400, which would look like a success.
            pub fn denied_status(
                self,
                status: http::StatusCode,
            ) -> Result<Self, tollgate_core::RuleError> {
                $crate::rate_limit::validation::refuse_success(status)?;
                Ok(self.set(|settings| settings.denied_status = status))
            }

            /// The protocol of denials. Default: as each request asks.
            ///
            /// Set [`Protocol::Http`](crate::rejection::Protocol::Http) if there is no gRPC behind the layer: otherwise the denial
            /// of a request with `content-type: application/grpc` has the status 200, and counts as a success in access logs and
            /// dashboards. Set it explicitly, too, if content types are wrong, as in front of a gateway that translates JSON to
            /// gRPC.
            pub fn protocol(self, protocol: $crate::protocol::Protocol) -> Self {
                self.set(|settings| settings.protocol = protocol)
            }

            /// Puts the decision into extensions: an [`Admission`](crate::Admission) into those of an allowed request, for handlers,
            /// and the [`Decision`](crate::Decision) into those of the response to a denied one, for outer layers such as an access
            /// log.
            ///
            /// Default: off, because it allocates. A layer with a rule [for handlers](crate::Rule::by_handler) always attaches the
            /// admission.
            pub fn attach_decision(self) -> Self {
                self.set(|settings| settings.attach_decision = true)
            }

            /// Counts CORS preflight requests as well. Default: they pass uncounted, because they carry no identity, and a browser
            /// reports a denied preflight as an unexplained failure of the actual request.
            ///
            /// A preflight is an OPTIONS request with `Origin` and `Access-Control-Request-Method`, without a body and without
            /// `Content-Type`. A request whose body is not known to be empty before it is read is counted: a chunked one in
            /// HTTP/1.1, one in HTTP/2 that ends in a separate frame, and one that an outer layer has wrapped in a body of unknown
            /// length.
            ///
            /// Anyone can send such requests without limit. Call this if they reach expensive code: handlers for OPTIONS or for any
            /// method (`any(..)` and fallbacks in axum, a proxy's handler). tonic's services ignore the method: for them, a
            /// preflight that no outer layer answers begins an empty client stream.
            pub fn count_preflight(self) -> Self {
                self.set(|settings| settings.count_preflight = true)
            }

            /// Limits how many requests may [wait](tollgate_core::Rule::wait) in a layer at once, and the bytes of their heads
            /// together. Default: 1 024, and 4 MiB. When either is reached, a request that would wait is denied at once, as if its
            /// rules did not wait. [`Rule::max_waiting`](tollgate_core::Rule::max_waiting) limits one rule, and one client of it.
            ///
            /// A waiting request holds its head and its connection, and its body is not read. The extensions that outer layers have
            /// added are not counted.
            pub fn max_waiting(self, requests: usize, head_bytes: usize) -> Self {
                self.set(|settings| settings.max_waiting = (requests, head_bytes))
            }

            /// Reports to clients how long their request has [waited](tollgate_core::Rule::wait), in milliseconds:
            /// `Server-Timing: ratelimit;dur=1250.3`. Default: off. A request that has not waited has no such field.
            ///
            /// Browsers show the field in their developer tools. To scripts of other origins it is visible with
            /// `Timing-Allow-Origin`.
            pub fn server_timing(self) -> Self {
                self.set(|settings| settings.server_timing = true)
            }
        }
    };
}

pub(crate) use {common_setters, live_layer, request_setters};
