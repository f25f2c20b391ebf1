//! The configuration of a layer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Semaphore;
use tollgate_core::{Decision, Tick, striped, wall_clock};

use crate::{
    header::{HeaderStyle, Headers},
    rate_limit::{request_rules::RequestRules, settings::Settings, wait_room::WaitRoom},
    rejection::Responses,
};

/// The rules of a layer on their store, and how it responds.
///
/// On cache lines of its own, and apart from its count of references: one stripe of threads writes that with each request.
#[derive(Clone)]
#[repr(align(128))]
pub(crate) struct Config {
    pub(crate) rules: RequestRules,
    pub(crate) headers: Headers,
    pub(crate) settings: Settings,
    /// The rejection with its status, prepared as far as possible.
    pub(crate) responses: Arc<Responses>,
    /// Whether it is asked for, or a handler needs an admission to check its rules.
    pub(crate) attach_decision: bool,
    /// Whether each admitted request has an [`Admission`](crate::Admission), or may be answered by a challenge.
    pub(crate) acts_on_requests: bool,
    /// Whether responses carry the quota's header fields.
    pub(crate) shows_quota: bool,
    /// Whether a response has any effect but the one that its [`Refund`](crate::service::Refund) asks for.
    pub(crate) acts_on_responses: bool,
    pub(crate) wait_room: Arc<WaitRoom>,
    /// Where denials are held back, if any rule does that.
    pub(crate) slow_room: Option<Arc<WaitRoom>>,
    /// It never has a permit: it is closed when no denial is held back any more.
    pub(crate) slow_end: Arc<Semaphore>,
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

/// The bytes of each denial that may be held.
const HELD_BYTES: usize = 4 << 10;

impl Config {
    pub(crate) fn new(mut rules: RequestRules, settings: Settings) -> Self {
        rules.look_up_deadline = settings.look_up_deadline;
        let rejection = settings.rejection.clone();
        let (requests, head_bytes) = settings.max_waiting;
        let slow = rules
            .list()
            .iter()
            .filter_map(|it| it.settings().slow_denials);
        let most_held = slow.map(|slow| slow.at_most).max();
        let attach_decision = settings.attach_decision || rules.is_checked_in_handler;
        let has_fields = settings.headers != HeaderStyle::NONE || !settings.own_fields.is_empty();
        let shows_quota = has_fields && !settings.hide_quota;
        Self {
            headers: Headers::new(settings.headers, settings.own_fields.clone(), rules.set()),
            responses: Arc::new(Responses::new(
                rejection,
                rules.set(),
                settings.denied_status,
            )),
            attach_decision,
            acts_on_requests: attach_decision || rules.counts_settled || rules.has_challenges,
            shows_quota,
            acts_on_responses: shows_quota
                || attach_decision
                || rules.settles_by_response
                || rules.counts_settled
                || rules.set().has_slots(),
            slow_room: most_held.map(|most| WaitRoom::new(most, most.saturating_mul(HELD_BYTES))),
            slow_end: Arc::new(Semaphore::new(0)),
            rules,
            settings,
            wait_room: WaitRoom::new(requests, head_bytes),
            place: Place::default(),
        }
    }

    /// Other rules or settings in the place of these: what waits, waits in the same room.
    pub(crate) fn with(&self, rules: RequestRules, settings: Settings) -> Self {
        let mut config = Self::new(rules, settings);
        config.slow_end = Arc::clone(&self.slow_end);
        if config.settings.max_waiting == self.settings.max_waiting {
            config.wait_room = Arc::clone(&self.wait_room);
        }
        let most_held = |it: &Self| Some(it.slow_room.as_ref()?.max_requests);
        if most_held(&config) == most_held(self) {
            config.slow_room.clone_from(&self.slow_room);
        }
        config
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

    /// When a decision was made, or has come from another process: by the clock of this machine, now.
    pub(crate) fn time_of(&self, decision: &Decision) -> Tick {
        let (now, store) = (wall_clock(), self.rules.limiter.rule_store());
        if store.can_fail() || decision.at() == 0 {
            return now;
        }
        // A store in this process has a clock of its own, and mostly the same time.
        let of_store = store.clock().now();
        match now.abs_diff(of_store) < 1_000 {
            true => decision.at(),
            false => now.saturating_sub(of_store.saturating_sub(decision.at())),
        }
    }

    /// The same, if fields say moments.
    #[inline]
    pub(crate) fn moment_of(&self, decision: &Decision) -> Option<Tick> {
        let has_moments = self.headers.has_moments;
        has_moments.then(|| self.time_of(decision))
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
}

tollgate_core::debug_fields!(Config, it => rules: it.rules, settings: it.settings);
