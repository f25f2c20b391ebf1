//! What is kept of one rule for metrics, the log and its top keys.

#[cfg(any(feature = "metrics", feature = "tracing"))]
use std::sync::Arc;
use std::sync::OnceLock;

use crate::{
    observe::top_keys::{TopKey, TopKeys},
    rule::Rule,
};
#[cfg(feature = "metrics")]
use crate::{
    observe::{counts::Counts, handles::Handles},
    sync::lock,
};
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
    pub(super) stripes: PerStripe<Mutex<Stripe>>,
    #[cfg(feature = "metrics")]
    pub(super) handles: Mutex<Handles>,
    /// Whether anything was counted since the counts were last published.
    #[cfg(feature = "metrics")]
    has_counts: std::sync::atomic::AtomicBool,
}

/// What one stripe of threads has seen of a rule.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[derive(Debug, Default)]
pub(super) struct Stripe {
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
                stripes: PerStripe::new(|_| Mutex::default()),
                #[cfg(feature = "metrics")]
                handles: Mutex::new(Handles::new(rule)),
                #[cfg(feature = "metrics")]
                has_counts: std::sync::atomic::AtomicBool::new(false),
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
        use std::sync::atomic::Ordering;
        let Some(used) = self.used.get() else { return };
        if !used.has_counts.load(Ordering::Relaxed) {
            return;
        }
        // Before the locks: what is counted behind them says so again.
        used.has_counts.store(false, Ordering::Relaxed);
        for stripe in used.stripes.iter() {
            let mut stripe = lock(stripe);
            lock(&used.handles).publish(&mut stripe.counts);
        }
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl Used {
    /// Counts on the stripe of this thread. `count` returns whether the counts are to be published at once.
    #[inline]
    pub(super) fn count<T>(&self, count: impl FnOnce(&mut Stripe) -> (bool, T)) -> T {
        let mut stripe = lock_briefly(self.stripes.here());
        let (at_once, result) = count(&mut stripe);
        #[cfg(feature = "metrics")]
        {
            use std::sync::atomic::Ordering;
            if at_once {
                self.publish(&mut stripe);
            } else if !self.has_counts.load(Ordering::Relaxed) {
                self.has_counts.store(true, Ordering::Relaxed);
            }
        }
        #[cfg(not(feature = "metrics"))]
        let _ = at_once;
        result
    }

    #[cfg(feature = "metrics")]
    #[cold]
    fn publish(&self, stripe: &mut Stripe) {
        lock(&self.handles).publish(&mut stripe.counts);
    }
}

#[cfg(feature = "metrics")]
impl Drop for RuleObserver {
    fn drop(&mut self) {
        self.flush();
    }
}
