//! A rule: a named quota, before it has a key.

use std::{ops::Deref, sync::Arc, time::Duration};

use tollgate_core::{Block, Consistency, KeyBuf, OnStoreError, Quota};

use crate::{key::KeyExtractor, request_rule::RequestRule};

/// A named quota, with its mode and its answer to a store failure.
///
/// [`by`](Self::by) adds the key and makes the [`RequestRule`] that a layer takes. A [`Limiter`](crate::Limiter) takes the rule
/// itself, and gets the key with each call.
///
/// It wraps `tollgate_core`'s [`Rule`](tollgate_core::Rule), to which it dereferences. Each converts into the other.
///
/// ```
/// use tollgate::{MINUTE, OnStoreError, Quota, Rule, key::client_ip};
///
/// let rule = Rule::new("search-per-ip", Quota::gcra(600, MINUTE).burst(50))
///     .plan("gold", Quota::gcra(6_000, MINUTE).burst(500))
///     .on_store_error(OnStoreError::Deny);
/// assert_eq!(rule.name(), "search-per-ip");
///
/// let of_requests = rule.by(client_ip());
/// # let _ = of_requests;
/// ```
#[must_use = "a rule limits nothing until it is part of a layer or a limiter"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule(tollgate_core::Rule);

impl Rule {
    /// A rule with this name and quota: enforced, one unit a request.
    ///
    /// The name identifies the budget: the same name on one store is one budget, wherever it is used. It appears in headers,
    /// metrics and logs. Letters, digits and `_ . : / * -`, the first a letter or `*`, at most 64.
    ///
    /// Name and numbers are checked when the rule becomes part of a layer or a limiter.
    pub fn new(name: impl Into<Arc<str>>, quota: Quota) -> Self {
        Self(tollgate_core::Rule::new(name, quota))
    }

    /// Counts requests by this key: see [`key`](crate::key).
    pub fn by(self, key: impl KeyExtractor) -> RequestRule {
        let rule = match self.0.subject_type_name() {
            Some(_) => self.0,
            None => self.0.subject_type(key.subject_type()),
        };
        RequestRule::new(rule, Some(Arc::new(key)))
    }

    /// Leaves the check to handlers, for keys that are in the body, say: see
    /// [`Admission::acquire`](crate::Admission::acquire). A layer with such a rule
    /// [attaches](crate::RateLimitLayer::attach_decision) an admission to each request.
    ///
    /// The other settings of a [`RequestRule`] are for checks by the layer; with this one they are an error.
    pub fn by_handler(self) -> RequestRule {
        RequestRule::new(self.0, None)
    }
}

/// Setters of the core's rule, for this one.
macro_rules! core_setters {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        impl Rule {
            $($(#[$doc])*
            pub fn $name(self $(, $argument: $type)*) -> Self {
                Self(self.0.$name($($argument),*))
            })*
        }
    };
}

core_setters! {
    /// Adds a plan: another quota under the same name, selected per request. It must have the same algorithm, or be
    /// [`unlimited`](Quota::unlimited).
    ///
    /// A client that changes plans keeps its usage.
    plan(name: impl Into<Arc<str>>, quota: Quota);

    /// Adds a threshold: a second limit read on this rule's state. It is reported under its own name, and denies nothing.
    threshold(name: impl Into<Arc<str>>, quota: Quota);

    /// The cost of a request in units, unless [`cost_by`](RequestRule::cost_by) computes it. Default: 1. A cost of 0 is refused.
    cost(units: u64);

    /// Lets checks in code bring a quota of their own along: see [`Limiter::quota_for`](crate::Limiter::quota_for). In a layer,
    /// [`quota_by`](RequestRule::quota_by) does it.
    variable_quota();

    /// Makes it a shadow: it decides and counts as if it were alone, is reported, and denies nothing.
    shadow();

    /// Switches the rule off.
    off();

    /// How exactly processes count together on a shared store.
    consistency(consistency: Consistency);

    /// Delays a request that does not fit now and will within `at_most`, instead of denying it: see
    /// [Slots and waiting](crate::guide::waiting). For buckets and [slots](Quota::concurrent).
    ///
    /// It has to be below the timeout of your clients: what starts after a client has given up is wasted.
    ///
    /// # Panics
    ///
    /// The future of a response panics outside of a tokio runtime with its timer enabled, when its request has to wait.
    wait(at_most: Duration);

    /// Blocks a key for a time, which grows, after too many denials: see [`Block`], and [`RequestRule::block`].
    block(block: Block);

    /// Lets a check in code that comes again with the same [id](crate::Limiter::with_id) cost nothing. In a layer,
    /// [`RequestRule::idempotent`] does it. See [`tollgate_core::Rule::idempotent`].
    idempotent(period: Duration);

    /// How often a request may repeat one with the same id at no cost: up to 255 times. Default: 3.
    free_repeats(repeats: u8);

    /// Lets a key owe up to `at_most` units, where a cost is known only afterwards, by the
    /// [response](RequestRule::cost_by_response) or a [`Ticket`](crate::decision::Ticket): it is charged in full even if less is left, and the next
    /// request waits until it is paid back. Without debt, what is not there lapses. See
    /// [`tollgate_core::Rule::debt`].
    debt(at_most: u64);

    /// Writes what is used to a ledger, under the name that `account` gives a key: see [`tollgate_core::Rule::durable`], and the crate
    /// `tollgate-ledger`.
    durable(account: impl Fn(&KeyBuf) -> String + Send + Sync + 'static);

    /// Denies requests while the ledger of this [durable](Self::durable) rule is further behind than its bounds.
    deny_unwritten();

    /// Counts usage by client and day for analytics, under the name that `account` gives a key: see [`tollgate_core::Rule::daily_usage`].
    daily_usage(account: impl Fn(&KeyBuf) -> String + Send + Sync + 'static);

    /// Gives keys a balance next to the quota: units that [`Limiter::grant`](tollgate_core::Limiter::grant) adds, with an end. A request
    /// whose cost does not fit the quota takes all of it from there. See [`tollgate_core::Rule::credits`].
    credits();

    /// How many requests may wait for this rule at once in one process, for one key and for all keys. Default: 256 and 16 384.
    /// The [layer](crate::RateLimitLayer::max_waiting) has a bound for all of its rules together, 1 024 by default. Above any of
    /// these, a request that would wait is denied. Take a `per_key` below the layer's bound, so that no client keeps the others from
    /// waiting.
    max_waiting(per_key: usize, in_all: usize);

    /// Keeps the keys that come most often, with their requests, denials and units of the last minutes: see
    /// [`Limiter::top_keys`](crate::Limiter::top_keys), which [`RateLimitLayer::limiter`](crate::RateLimitLayer::limiter) has.
    top_keys();

    /// What the rule counts by, as the label `subject_type` of its metrics: `api_key`, `tenant`. A fixed word, and nothing of a
    /// request. Default: what its key [says of itself](crate::key::KeyExtractor::subject_type), such as `ip` or `header`.
    subject_type(name: impl Into<Arc<str>>);

    /// What the rule counts, in the plural: `tokens`, `bytes`, `words`. [Rejections](crate::rejection) say so ("allows 10000 tokens
    /// per 60 s"), and so does `qu` of [`DRAFT_11`](crate::header::HeaderStyle::DRAFT_11). Default: `requests`, and `units` where a
    /// request costs something other than 1 or a closure computes the cost.
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota, Rule, key::header};
    ///
    /// let rule = Rule::new("tokens-per-key", Quota::gcra(10_000, MINUTE))
    ///     .unit("tokens")
    ///     .cost(500)
    ///     .by(header("x-api-key"));
    /// # let _ = rule;
    /// ```
    unit(name: impl Into<Arc<str>>);

    /// Keeps the [top keys](Self::top_keys), and shows each by what `label` calls it: an account's number, an address with its
    /// end masked. It is shown in top keys and in warnings of hot keys, so it should not be a secret. It is called for
    /// keys that come often, not for each request.
    label(label: impl Fn(&KeyBuf) -> String + Send + Sync + 'static);

    /// How to decide while the store fails.
    on_store_error(answer: OnStoreError);
}

impl Deref for Rule {
    type Target = tollgate_core::Rule;

    fn deref(&self) -> &tollgate_core::Rule {
        &self.0
    }
}

impl From<Rule> for tollgate_core::Rule {
    fn from(rule: Rule) -> Self {
        rule.0
    }
}

impl From<tollgate_core::Rule> for Rule {
    fn from(rule: tollgate_core::Rule) -> Self {
        Self(rule)
    }
}
