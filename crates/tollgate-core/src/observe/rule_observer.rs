//! What is kept of one rule for metrics, the log and its top keys.

#[cfg(any(feature = "metrics", feature = "tracing"))]
use std::sync::Arc;
use std::sync::OnceLock;
#[cfg(feature = "metrics")]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(feature = "metrics")]
use crate::{
    decision::Verdict,
    observe::{counts::Counts, handles::Handles},
    sync::lock,
};
use crate::{
    observe::top_keys::{TopKey, TopKeys},
    rule::Rule,
};

/// One in so many requests is a sample.
#[cfg(feature = "metrics")]
const ONE_IN: u64 = 16;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::{
    striped::PerStripe,
    sync::{Mutex, lock_briefly},
};

/// It costs little before the rule is used.
#[derive(Debug, Default)]
pub(super) struct RuleObserver {
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    used: OnceLock<Box<Used>>,
    top_keys: OnceLock<Box<TopKeys>>,
}

/// Of a rule that was used. What threads write, each stripe writes for itself.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[derive(Debug)]
pub(super) struct Used {
    pub(super) stripes: PerStripe<Stripe>,
    #[cfg(feature = "metrics")]
    pub(super) handles: Mutex<Handles>,
    /// Whether anything was counted since the counts were last published.
    #[cfg(feature = "metrics")]
    has_counts: AtomicBool,
    /// Requests that leave more than this are counted without a lock. `u64::MAX`: none is.
    #[cfg(feature = "metrics")]
    near_limit: u64,
}

/// What one stripe of threads has seen of a rule.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[derive(Debug, Default)]
pub(super) struct Stripe {
    /// Most requests: of one unit, let through by the store, not near the limit of the rule's own quota.
    #[cfg(feature = "metrics")]
    allowed: AtomicU64,
    /// Whether the series of such requests was published before.
    #[cfg(feature = "metrics")]
    is_begun: AtomicBool,
    rest: Mutex<Rest>,
}

/// The requests that need a lock.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[derive(Debug, Default)]
pub(super) struct Rest {
    #[cfg(feature = "metrics")]
    pub(super) counts: Counts,
    /// Requests and denials, to take samples of.
    #[cfg(feature = "metrics")]
    pub(super) requests: u32,
    #[cfg(feature = "metrics")]
    pub(super) denials: u32,
    #[cfg(feature = "tracing")]
    pub(super) logged: crate::observe::denial_sampler::DenialSampler,
}

impl RuleObserver {
    /// Of a rule that takes the place of the one that `before` observes.
    pub(super) fn succeeding(rule: &Rule, before: &Self) -> Self {
        let observer = Self::default();
        if let Some((setting, kept)) = rule.top_keys_setting().zip(before.top_keys.get()) {
            let kept = Box::new(TopKeys::succeeding(setting, kept));
            let _: Result<(), _> = observer.top_keys.set(kept);
        }
        observer
    }

    /// The top keys of a rule that keeps them.
    #[inline]
    pub(super) fn top_keys(&self, rule: &Rule) -> Option<&TopKeys> {
        let setting = rule.top_keys_setting()?;
        let top_keys = self
            .top_keys
            .get_or_init(|| Box::new(TopKeys::new(setting)));
        Some(&**top_keys)
    }

    pub(super) fn top(&self, most: usize) -> Vec<TopKey> {
        self.top_keys
            .get()
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
            crate::observe::flush::register(self);
            Box::new(Used {
                stripes: PerStripe::new(|_| Stripe::default()),
                #[cfg(feature = "metrics")]
                handles: Mutex::new(Handles::new(rule)),
                #[cfg(feature = "metrics")]
                has_counts: AtomicBool::new(false),
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

    /// Publishes what all stripes have counted.
    #[cfg(feature = "metrics")]
    pub(super) fn flush(&self) {
        let Some(used) = self.used.get() else { return };
        if !used.has_counts.load(Ordering::SeqCst) {
            return;
        }
        // Before the counts are taken: what is counted later says so again.
        used.has_counts.store(false, Ordering::SeqCst);
        for stripe in used.stripes.iter() {
            used.publish(stripe, &mut lock(&stripe.rest));
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
        if at_once {
            self.publish(stripe, &mut rest);
        } else {
            self.has_counted();
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
        let stripe = self.stripes.here();
        if !stripe.is_begun.load(Ordering::Relaxed) {
            return None;
        }
        let before = stripe.allowed.fetch_add(1, Ordering::SeqCst);
        self.has_counted();
        Some(before % ONE_IN == ONE_IN - 1)
    }

    #[cfg(feature = "metrics")]
    #[inline]
    fn has_counted(&self) {
        // Read first: all stripes share it.
        if !self.has_counts.load(Ordering::SeqCst) {
            self.has_counts.store(true, Ordering::SeqCst);
        }
    }

    #[cfg(feature = "metrics")]
    #[cold]
    fn publish(&self, stripe: &Stripe, rest: &mut Rest) {
        let allowed = stripe.allowed.swap(0, Ordering::SeqCst);
        rest.counts.plain(allowed);
        lock(&self.handles).publish(&mut rest.counts);
        stripe
            .is_begun
            .store(rest.counts.has_published_plain(), Ordering::Relaxed);
    }
}

#[cfg(feature = "metrics")]
impl Drop for RuleObserver {
    fn drop(&mut self) {
        self.flush();
    }
}
