//! What is kept of one rule for metrics, the log and its top keys.

#[cfg(any(feature = "metrics", feature = "tracing"))]
use std::sync::Arc;
use std::sync::OnceLock;
#[cfg(feature = "metrics")]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(feature = "metrics")]
use crate::{
    decision::Verdict,
    observe::{
        counts::Counts,
        flush::{self, Flush},
        handles::Handles,
        series::{Kind, Series},
    },
    source::Source,
    sync::lock,
};
use crate::{
    observe::top_keys::{TopKey, TopKeys},
    rule::Rule,
    top_keys_setting::TopKeysSetting,
};
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::{
    striped::PerStripe,
    sync::{Mutex, lock_briefly},
};

/// One request in this number is a sample.
#[cfg(feature = "metrics")]
const ONE_IN: u64 = 16;

/// It costs little before the rule is used.
#[derive(Debug)]
pub(super) struct RuleObserver {
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    used: OnceLock<Box<Used>>,
    /// `None`: the rule does not keep them.
    top_keys: Option<OnceLock<TopKeys>>,
}

/// Of a rule that was used. What threads write, each stripe writes for itself.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[derive(Debug)]
pub(super) struct Used {
    pub(super) stripes: PerStripe<Stripe>,
    #[cfg(feature = "metrics")]
    pub(super) handles: Mutex<Handles>,
    /// Whether anything was counted since the last flush.
    #[cfg(feature = "metrics")]
    has_counts: AtomicBool,
    /// Whether there are counts that a flush is going to publish soon.
    #[cfg(feature = "metrics")]
    is_behind: AtomicBool,
    /// Requests that leave more than this are counted without a lock. `u64::MAX`: none is.
    #[cfg(feature = "metrics")]
    near_limit: u64,
}

/// The requests of a stripe that publish their counts themselves, from one flush to the next. A rule that is used now and then
/// is never behind; a busy one does not write each time what all threads write.
#[cfg(feature = "metrics")]
const AT_ONCE: u8 = 64;

/// What one stripe of threads has seen of a rule.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[derive(Debug, Default)]
pub(super) struct Stripe {
    /// Most requests of a busy rule: of one unit, let through by the store, not near the limit of the rule's own quota.
    #[cfg(feature = "metrics")]
    allowed: PlainCount,
    /// Most denials of a busy rule: of one unit, by the rule's own quota, by the store.
    #[cfg(feature = "metrics")]
    denied: PlainCount,
    /// The same by the deny cache.
    #[cfg(feature = "metrics")]
    denied_again: PlainCount,
    rest: Mutex<Rest>,
}

/// Requests that are counted without a lock.
#[cfg(feature = "metrics")]
#[derive(Debug, Default)]
struct PlainCount {
    count: AtomicU64,
    /// Whether they are counted here: those at the beginning publish their counts themselves.
    is_busy: AtomicBool,
}

#[cfg(feature = "metrics")]
impl PlainCount {
    /// Counts one. `None`: it is to be counted otherwise. `Some(true)`: it is a sample.
    #[inline]
    fn add(&self) -> Option<bool> {
        if !self.is_busy.load(Ordering::Relaxed) {
            return None;
        }
        let before = self.count.fetch_add(1, Ordering::SeqCst);
        Some(before % ONE_IN == ONE_IN - 1)
    }

    fn take(&self) -> u64 {
        self.count.swap(0, Ordering::SeqCst)
    }

    fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }
}

/// The requests that need a lock.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[derive(Debug, Default)]
pub(super) struct Rest {
    #[cfg(feature = "metrics")]
    pub(super) counts: Counts,
    /// How many requests have published their counts since the last flush.
    #[cfg(feature = "metrics")]
    published: u8,
    /// Requests and denials, to take samples of.
    #[cfg(feature = "metrics")]
    pub(super) requests: u32,
    #[cfg(feature = "metrics")]
    pub(super) denials: u32,
    #[cfg(feature = "tracing")]
    pub(super) logged: crate::observe::denial_sampler::DenialSampler,
}

impl RuleObserver {
    pub(super) fn new(rule: &Rule) -> Self {
        Self::keeping(rule.top_keys_setting().map(|_| OnceLock::new()))
    }

    /// The observer of a rule that takes the place of the one that `before` observes.
    pub(super) fn succeeding(rule: &Rule, before: &Self) -> Self {
        let succeeding = |setting| match before.top_keys_before() {
            Some(kept) => OnceLock::from(TopKeys::succeeding(setting, kept)),
            None => OnceLock::new(),
        };
        Self::keeping(rule.top_keys_setting().map(succeeding))
    }

    fn keeping(top_keys: Option<OnceLock<TopKeys>>) -> Self {
        Self {
            #[cfg(any(feature = "metrics", feature = "tracing"))]
            used: OnceLock::new(),
            top_keys,
        }
    }

    /// The top keys of a rule that keeps them.
    #[inline]
    pub(super) fn top_keys<'a>(&self, rule: impl FnOnce() -> Option<&'a Rule>) -> Option<&TopKeys> {
        let top_keys = self.top_keys.as_ref()?;
        match top_keys.get() {
            Some(top_keys) => Some(top_keys),
            None => Some(first_top_keys(top_keys, rule()?.top_keys_setting()?)),
        }
    }

    /// The same, if there was a request.
    #[inline]
    pub(super) fn top_keys_before(&self) -> Option<&TopKeys> {
        self.top_keys.as_ref()?.get()
    }

    /// The memory of its top keys.
    #[cfg(feature = "metrics")]
    pub(super) fn top_keys_bytes(&self) -> u64 {
        self.top_keys_before().map_or(0, |keys| keys.bytes() as u64)
    }

    pub(super) fn top(&self, most: usize) -> Vec<TopKey> {
        self.top_keys_before()
            .map_or_else(Vec::new, |keys| keys.top(most))
    }

    /// Its counts, from the first use on.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    #[inline]
    pub(super) fn used(self: &Arc<Self>, rule: &Rule) -> &Used {
        match self.used.get() {
            Some(used) => used,
            None => self.first_used(rule),
        }
    }

    #[cfg(any(feature = "metrics", feature = "tracing"))]
    #[cold]
    fn first_used(self: &Arc<Self>, rule: &Rule) -> &Used {
        #[cfg(not(feature = "metrics"))]
        let _ = rule;
        self.used.get_or_init(|| {
            #[cfg(feature = "metrics")]
            flush::register(Arc::downgrade(self) as std::sync::Weak<dyn Flush>);
            Box::new(Used {
                stripes: PerStripe::new(|_| Stripe::default()),
                #[cfg(feature = "metrics")]
                handles: Mutex::new(Handles::new(rule)),
                #[cfg(feature = "metrics")]
                has_counts: AtomicBool::new(false),
                #[cfg(feature = "metrics")]
                is_behind: AtomicBool::new(false),
                #[cfg(feature = "metrics")]
                near_limit: match rule.limit_under(0) {
                    Some(limit) if rule.is_enforced() => limit / 5,
                    _ => u64::MAX,
                },
            })
        })
    }

    #[cfg(feature = "metrics")]
    pub(super) fn used_before(&self) -> Option<&Used> {
        self.used.get().map(|used| &**used)
    }
}

#[cold]
fn first_top_keys<'a>(place: &'a OnceLock<TopKeys>, setting: &TopKeysSetting) -> &'a TopKeys {
    place.get_or_init(|| TopKeys::new(setting))
}

#[cfg(feature = "metrics")]
impl Flush for RuleObserver {
    fn flush(&self) {
        let Some(used) = self.used.get() else { return };
        let (has_counts, is_behind) = (&used.has_counts, &used.is_behind);
        if !has_counts.load(Ordering::SeqCst) && !is_behind.load(Ordering::SeqCst) {
            return;
        }
        // Before the counts are taken: what is counted later says so again.
        has_counts.store(false, Ordering::SeqCst);
        is_behind.store(false, Ordering::SeqCst);
        for stripe in used.stripes.iter() {
            let mut rest = lock(&stripe.rest);
            rest.published = 0;
            used.publish(stripe, &mut rest);
        }
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl Used {
    /// Counts on the stripe of this thread. `count` returns whether the counts are to be published at once.
    #[inline]
    pub(super) fn count<T>(&self, count: impl FnOnce(&mut Rest) -> (bool, T)) -> T {
        let stripe = self.stripes.here();
        let mut rest = lock_briefly(&stripe.rest);
        let (at_once, result) = count(&mut rest);
        #[cfg(feature = "metrics")]
        {
            if !self.has_counts.load(Ordering::SeqCst) {
                self.has_counts.store(true, Ordering::SeqCst);
            }
            if at_once || rest.published < AT_ONCE {
                rest.published = rest.published.saturating_add(1);
                self.publish(stripe, &mut rest);
            } else {
                self.leave_to_flush();
            }
        }
        #[cfg(not(feature = "metrics"))]
        let _ = at_once;
        result
    }

    /// Counts a verdict of most requests, which takes no lock. `None`: it is not one of them. `Some(true)`: it is a sample.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(super) fn count_plain(&self, verdict: &Verdict, cost: u64) -> Option<bool> {
        if cost != 1 || !verdict.is_plain_allow() || verdict.remaining() <= self.near_limit {
            return None;
        }
        let is_sample = self.stripes.here().allowed.add()?;
        self.leave_to_flush();
        Some(is_sample)
    }

    /// The same of a verdict of most denials.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(super) fn count_plain_denial(&self, verdict: &Verdict, cost: u64) -> Option<bool> {
        // A rule without this number is not enforced, or has no limit.
        if cost != 1 || !verdict.is_plain_denial() || self.near_limit == u64::MAX {
            return None;
        }
        let stripe = self.stripes.here();
        let is_sample = match verdict.source() {
            Source::DenyCache => stripe.denied_again.add(),
            _ => stripe.denied.add(),
        }?;
        self.leave_to_flush();
        Some(is_sample)
    }

    #[cfg(feature = "metrics")]
    #[inline]
    fn leave_to_flush(&self) {
        // Read first: all stripes share it.
        if !self.is_behind.load(Ordering::SeqCst) {
            self.is_behind.store(true, Ordering::SeqCst);
            flush::flush_soon();
        }
    }

    #[cfg(feature = "metrics")]
    #[cold]
    fn publish(&self, stripe: &Stripe, rest: &mut Rest) {
        let plain = [
            (&stripe.allowed, Kind::Allowed, Source::Store),
            (&stripe.denied, Kind::DeniedQuota, Source::Store),
            (&stripe.denied_again, Kind::DeniedQuota, Source::DenyCache),
        ];
        for (count, kind, source) in plain {
            let is_allowed = kind == Kind::Allowed;
            rest.counts
                .plain(Series::of(kind, source), is_allowed, count.take());
        }
        lock(&self.handles).publish(&mut rest.counts);
        let is_busy = rest.published >= AT_ONCE;
        for (count, kind, source) in plain {
            let is_published = rest.counts.has_published_plain(Series::of(kind, source));
            count.set_busy(is_busy && is_published);
        }
    }
}

#[cfg(feature = "metrics")]
impl Drop for RuleObserver {
    fn drop(&mut self) {
        self.flush();
    }
}
