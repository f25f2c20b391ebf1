//! The configuration of a layer.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::StatusCode;
use tollgate_core::{Limiter, RuleError, Store, striped};

use crate::{
    header::{HeaderStyle, Headers},
    protocol::Protocol,
    rate_limit::{
        duplicate_detector::DuplicateDetector,
        request_rules::RequestRules,
        wait_room::{MAX_HEAD_BYTES, MAX_REQUESTS, WaitRoom},
    },
    rejection::{Rejection, Responses},
    rule::RequestRule,
};

/// The rules of a layer on their store, and how it responds.
///
/// On cache lines of its own, and apart from its count of references: one stripe of threads writes that with each request.
#[derive(Clone)]
#[repr(align(128))]
pub(crate) struct Config {
    pub(crate) rules: RequestRules,
    pub(crate) headers: Headers,
    style: HeaderStyle,
    pub(crate) hide_quota: bool,
    pub(crate) rejection: Rejection,
    pub(crate) denied_status: StatusCode,
    pub(crate) protocol: Protocol,
    /// The rejection with its status, prepared as far as possible.
    pub(crate) responses: Arc<Responses>,
    pub(crate) jitter_percent: u8,
    pub(crate) attach_decision: bool,
    /// Whether the decision is attached whatever the rules are.
    always_attaches: bool,
    pub(crate) count_preflight: bool,
    /// Whether responses report the time that their request has waited.
    pub(crate) server_timing: bool,
    pub(crate) wait_room: Arc<WaitRoom>,
    pub(crate) duplicates: DuplicateDetector,
    place: Place,
}

/// The stripe of threads whose configuration it is, and whether another has taken its place there.
#[derive(Default)]
struct Place {
    stripe: usize,
    is_replaced: AtomicBool,
}

/// A copy has no place yet.
impl Clone for Place {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Config {
    pub(crate) fn new(
        replaced: &[&Limiter],
        store: &dyn Store,
        rules: Vec<RequestRule>,
    ) -> Result<Self, RuleError> {
        let rules = RequestRules::new(replaced, store, rules)?;
        let style = HeaderStyle::DRAFT_11;
        let rejection = Rejection::problem();
        let denied_status = StatusCode::TOO_MANY_REQUESTS;
        Ok(Self {
            responses: Arc::new(Responses::new(
                rejection.clone(),
                rules.set(),
                denied_status,
            )),
            headers: Headers::new(style, rules.set()),
            // A handler needs an admission to check its rules.
            attach_decision: rules.is_checked_in_handler,
            always_attaches: false,
            duplicates: DuplicateDetector::new(rules.set().version()),
            rules,
            style,
            hide_quota: false,
            rejection,
            denied_status,
            protocol: Protocol::Auto,
            jitter_percent: 0,
            count_preflight: false,
            server_timing: false,
            wait_room: WaitRoom::new(MAX_REQUESTS, MAX_HEAD_BYTES),
            place: Place::default(),
        })
    }

    /// The same settings with other rules.
    pub(crate) fn with_rules(&self, mut rules: RequestRules) -> Self {
        rules.look_up_deadline = self.rules.look_up_deadline;
        let (rejection, set) = (self.rejection.clone(), rules.set());
        Self {
            headers: Headers::new(self.style, set),
            responses: Arc::new(Responses::new(rejection, set, self.denied_status)),
            attach_decision: self.always_attaches || rules.is_checked_in_handler,
            duplicates: DuplicateDetector::new(rules.set().version()),
            rules,
            ..self.clone()
        }
    }

    /// The same configuration for another stripe of threads: what is counted with each request is its own, and all that is
    /// only read, such as what was prepared for each rule, is shared.
    pub(crate) fn for_stripe(&self, stripe: usize) -> Self {
        Self {
            headers: self.headers.for_stripe(),
            place: Place {
                stripe,
                ..Place::default()
            },
            ..self.clone()
        }
    }

    /// Whether it is in force for requests of the current thread.
    #[inline]
    pub(crate) fn is_in_force_here(&self) -> bool {
        self.place.stripe == striped::current_stripe()
            && !self.place.is_replaced.load(Ordering::Acquire)
    }

    /// Another one takes its place.
    pub(crate) fn retire(&self) {
        self.place.is_replaced.store(true, Ordering::Release);
    }

    pub(crate) fn attach_always(&mut self) {
        self.always_attaches = true;
        self.attach_decision = true;
    }

    pub(crate) fn set_headers(&mut self, style: HeaderStyle) {
        self.style = style;
        self.headers = Headers::new(style, self.rules.set());
    }

    pub(crate) fn set_rejection(&mut self, rejection: Rejection) {
        self.rejection = rejection;
        self.prepare_responses();
    }

    pub(crate) fn set_denied_status(&mut self, status: StatusCode) {
        self.denied_status = status;
        self.prepare_responses();
    }

    fn prepare_responses(&mut self) {
        self.responses = Arc::new(Responses::new(
            self.rejection.clone(),
            self.rules.set(),
            self.denied_status,
        ));
    }

    /// Whether responses carry the quota's header fields.
    pub(crate) fn shows_quota(&self) -> bool {
        !self.hide_quota && self.style != HeaderStyle::NONE
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("rules", &self.rules)
            .field("headers", &self.style)
            .field("rejection", &self.rejection)
            .finish_non_exhaustive()
    }
}
