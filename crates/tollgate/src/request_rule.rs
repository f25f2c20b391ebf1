//! A rule with its key: the cost, the plan, when it applies, and what becomes of requests that it denies.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use tollgate_core::{Block, Decision, Key, KeyBuf, OnStoreError, Quota, Verdict};

use crate::{
    head::Head,
    inner_response::InnerResponse,
    key::KeyExtractor,
    key_list::KeyList,
    known_condition::{Condition, KnownCondition},
    request_settings::{ChallengeFn, Missing, RequestSettings, SlowDenials},
    routes::Routes,
};

/// A rule with its key, which layers accept. Made by [`Rule::by`](crate::Rule::by).
///
/// ```
/// use http::{Method, StatusCode};
/// use tollgate::{MINUTE, Missing, Quota, Rule, key::header};
///
/// let rule = Rule::new("writes-per-key", Quota::gcra(600, MINUTE).burst(50))
///     .plan("gold", Quota::gcra(6_000, MINUTE).burst(500))
///     .by(header("x-api-key"))
///     .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED))
///     .when(|head| head.method == Method::POST)
///     .cost_by(|head| if head.uri.path().ends_with("/bulk") { 10 } else { 1 })
///     .plan_by(|head| head.extensions.get::<&'static str>().copied());
/// # let _ = rule;
/// ```
#[must_use = "a rule limits nothing until it is part of a layer"]
#[derive(Clone)]
pub struct RequestRule {
    /// Shared by copies: a swap of thousands of rules makes many of them.
    settings: Arc<RequestSettings>,
}

/// A rule with a key, which layers accept: a [`RequestRule`].
///
/// A rule by itself does not compile:
///
/// ```compile_fail,E0277
/// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule};
///
/// let rule = Rule::new("per-ip", Quota::gcra(60, MINUTE));
/// let limits = RateLimitLayer::new(MemoryStore::new(), [rule]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no key",
    label = "`.by(..)` is missing",
    note = "add `.by(client_ip())`, `.by(header(\"x-api-key\"))` or another extractor of `tollgate::key`",
    note = "where only a handler knows the key, add `.by_handler()`"
)]
pub trait KeyedRule: Into<RequestRule> {}

impl KeyedRule for RequestRule {}

impl RequestRule {
    pub(crate) fn new(rule: tollgate_core::Rule, key: Option<Arc<dyn KeyExtractor>>) -> Self {
        let settings = RequestSettings::new(rule, key);
        Self {
            settings: Arc::new(settings),
        }
    }

    #[inline]
    pub(crate) fn settings(&self) -> &RequestSettings {
        &self.settings
    }

    /// Its name and numbers. For the crates of tollgate.
    #[doc(hidden)]
    pub fn numbers(&self) -> &tollgate_core::Rule {
        &self.settings.rule
    }

    /// A shadow of the rule under another name, with another limit. Plans keep theirs.
    pub(crate) fn as_shadow(&self, name: &str, quota: Quota) -> Self {
        let rule = &self.settings.rule;
        let mut shadow = tollgate_core::Rule::new(name, quota)
            .cost(rule.fixed_cost())
            .consistency(rule.consistency_of())
            .on_store_error(OnStoreError::Allow)
            .shadow();
        for plan in 1..rule.quotas() {
            let plan_name = rule.plan_name(plan).unwrap_or_default();
            shadow = shadow.plan(plan_name, *rule.quota_of(plan));
        }
        self.clone().with(|settings| {
            settings.rule = shadow;
            settings.is_preview = true;
            settings.quota = None;
            settings.id = None;
            // What clients and an application get of denials, and of a failed store, is the rule's own.
            settings.store_errors.clear();
            settings.on_denied = None;
            settings.slow_denials = None;
            settings.challenges.clear();
        })
    }

    /// The same with other numbers: those that switches and overrides make of a rule in a file. For the crates of tollgate.
    #[doc(hidden)]
    pub fn with_numbers(mut self, mut numbers: tollgate_core::Rule) -> Self {
        let settings = self.set();
        if let Some(subject) = settings.rule.subject_type_name() {
            numbers = numbers.subject_type(subject);
        }
        if settings.quota.is_some() {
            numbers = numbers.variable_quota();
        }
        if numbers.idempotent_for().is_none() {
            settings.id = None;
        }
        settings.rule = numbers;
        if settings.cost.is_some() || settings.response_cost.is_some() {
            settings.counts("units");
        }
        self
    }

    /// Clients are told that it counts messages, unless it has a unit of its own.
    pub(crate) fn counts_messages(&mut self) {
        if self.settings.rule.fixed_cost() == 1 {
            self.set().counts("messages");
        }
    }

    fn set(&mut self) -> &mut RequestSettings {
        Arc::make_mut(&mut self.settings)
    }

    fn with(mut self, change: impl FnOnce(&mut RequestSettings)) -> Self {
        change(self.set());
        self
    }

    /// What to do with requests that have no key. Default: they share one bucket. A request under a plan that is
    /// [unlimited](Quota::unlimited) needs none.
    pub fn when_missing(self, missing: Missing) -> Self {
        self.with(|settings| settings.missing = missing)
    }

    /// Computes the cost of a request in units from its head. 0 takes nothing, and passes whatever the key has used or owes.
    ///
    /// A cost above the limit or burst never fits: such a request is always denied, without a `Retry-After`, and the first one is
    /// an event at warn level. Cap the result. Only a balance of [credits](crate::Rule::credits) may pay it.
    pub fn cost_by(self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| {
            settings.cost = Some(Arc::new(cost));
            settings.counts("units");
        })
    }

    /// Keeps the units of a request if the inner service returns an error or a response with a [`Refund`](crate::service::Refund).
    /// Default: they are refunded, because the request was not served; but [`count_if`](Self::count_if) decides about an error, as about
    /// a response of status 500.
    ///
    /// Use it for every rule whose clients can provoke such an error and profit: log-ins and codes, and work that is expensive
    /// before it fails, as with a timeout inside of the layer.
    pub fn keep_on_error(self) -> Self {
        self.with(|settings| settings.keeps = true)
    }

    /// Blocks a key for a time, which grows, after too many denials: see [`Block`].
    ///
    /// With [`count_if`](Self::count_if) or [`cost_by_response`](Self::cost_by_response) not denials count, which running requests
    /// may cause, but requests that stay counted, when they are settled: failures, clients that hang up, handlers that panic. So people
    /// behind one address who log in at once are not blocked. A handler that takes a ticket of a rule [for
    /// handlers](crate::Rule::by_handler) says [`count_settled`](Block::count_settled).
    ///
    /// While a key is blocked, its requests get the status of denials and `Retry-After`, with the reason
    /// [`Blocked`](crate::decision::Reason::Blocked). A block by account lets an attacker lock out its owner: block by address and
    /// account together, or leave a way in.
    ///
    /// ```
    /// use tollgate::{Block, DAY, HOUR, MINUTE, Quota, Rule, key::client_ip};
    ///
    /// let rule = Rule::new("login", Quota::sliding_log(5, MINUTE))
    ///     .by(client_ip())
    ///     .count_if(|response| response.status() == 401)
    ///     .block(Block::after(5).within(10 * MINUTE).for_each([MINUTE, 10 * MINUTE, HOUR]).forget_after(DAY));
    /// # let _ = rule;
    /// ```
    #[doc(alias = "ban")]
    pub fn block(self, block: Block) -> Self {
        self.with(|settings| settings.rule = settings.rule.clone().block(block))
    }

    /// The status of requests that a limit of [none](Quota::none) blocks, 400 to 499. Default: 403, and PERMISSION_DENIED in
    /// gRPC. A 401 is UNAUTHENTICATED there, and a 429 RESOURCE_EXHAUSTED.
    ///
    /// A 401 requires a `WWW-Authenticate` field (RFC 9110 §15.5.2): see [`Missing::Reject`].
    pub fn blocked_status(self, status: StatusCode) -> Self {
        self.with(|settings| settings.blocked_status = status)
    }

    /// Holds each denial of this rule back for so long, which makes guessing slow and costs an attacker connections: at most that many
    /// at once in a layer, with 4 KiB each. Above that, denials are sent at once. Where several rules deny, the longest time counts; a
    /// gRPC call is held for at most half of its timeout.
    ///
    /// The connections are yours, too: a client that waits holds one, and the memory of it. Take seconds, and fewer requests than the
    /// service has connections. Before a graceful shutdown, [end](crate::RateLimitLayer::end_slow_denials) what is held.
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota, Rule, SECOND, key::client_ip};
    ///
    /// let rule = Rule::new("login", Quota::sliding_log(5, MINUTE))
    ///     .by(client_ip())
    ///     .slow_denials(2 * SECOND, 500);
    /// # let _ = rule;
    /// ```
    ///
    /// # Panics
    ///
    /// The future of a response panics outside of a tokio runtime with its timer enabled, when its denial is held.
    pub fn slow_denials(self, by: Duration, at_most: usize) -> Self {
        self.with(|settings| settings.slow_denials = Some(SlowDenials { by, at_most }))
    }

    /// Lets the closure answer in the place of the service while a key is above this [threshold](crate::Rule::threshold): with a page that asks
    /// for proof of a human, or a 401 that asks for a second factor. `None` goes on to the service. The verdict is that of the threshold.
    /// A shadow does not challenge, and no rule does while the store fails.
    ///
    /// The request is admitted, and counts; [`count_if`](Self::count_if) sees the answer. Who has passed starts anew by
    /// [`Limiter::reset`](crate::Limiter::reset): see [Answer abuse](crate::guide::abuse).
    pub fn challenge(
        self,
        threshold: impl Into<Arc<str>>,
        answer: impl Fn(&Head<'_>, &Verdict) -> Option<Response<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let challenge: (_, Arc<ChallengeFn>) = (threshold.into(), Arc::new(answer));
        self.with(|settings| settings.challenges.push(challenge))
    }

    /// Counts only the requests for whose response this is `true`: failed log-ins, say, or what a cache did not answer. Called
    /// twice, both must be.
    ///
    /// A request takes its units before the inner service is called, and gets them back if its response does not count. Requests
    /// that run at the same time therefore never get past the limit: if it is 5, at most 5 requests of a client have no response yet,
    /// and a sixth is denied, whatever their responses will be.
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota, Rule, key::client_ip};
    ///
    /// // Five failures in ten minutes lock an address out.
    /// let rule = Rule::new("failures-per-ip", Quota::sliding_log(5, 10 * MINUTE))
    ///     .by(client_ip())
    ///     .count_if(|response| matches!(response.status().as_u16(), 401 | 403));
    /// # let _ = rule;
    /// ```
    ///
    /// # Which response
    ///
    /// - In HTTP, the head decides. In gRPC, the status does, from the header or the trailers; the units are held until then. In
    ///   gRPC-Web the trailers are a part of the body, so put the layer inside of `GrpcWebLayer`; outside of it, a call whose status
    ///   is not in its header counts.
    /// - An error of the inner service [is a response](InnerResponse::is_error), with the status 500. With
    ///   [`keep_on_error`](Self::keep_on_error) it counts. A response with a [`Refund`](crate::service::Refund) does not count.
    /// - A request counts that has no response: the client has gone before it came, or the handler panicked; or, in gRPC, that ends
    ///   without trailers, because the client has cancelled it.
    /// - A request whose handler takes the [ticket](crate::Admission::ticket) is settled by the handler alone.
    /// - A [shadow](crate::Rule::shadow) counts in the same way. A request that another rule denies has no response, and counts in it.
    ///
    /// A response that does not count, or whose status comes in the trailers, has no quota fields of the rule: what they say is left
    /// would be wrong.
    ///
    /// # Accuracy
    ///
    /// Giving units back never exceeds the quota: in any window of time, no more units count than the quota admits; after a
    /// [reset](crate::Limiter::reset) of the key, also as many as were forgotten of requests that ran then.
    ///
    /// | | comes back |
    /// | --- | --- |
    /// | sliding log, sliding buckets, fixed and sliding window | all units, until they expire by themselves |
    /// | token bucket, GCRA, leaky bucket | of `c` units held for a time `t`, at most `c − rate · t`: the rest has refilled meanwhile |
    /// | a bucket whose requests [wait](crate::Rule::wait) | all units, if no request has taken any since; otherwise none: those behind know when they start |
    /// | units that a process has on [lease](crate::Consistency::Leased) | as above, to the lease; of a bucket only while the lease is there |
    /// | units counted [locally](crate::Consistency::Eventual) | as above, from what is not reported yet, or else in the store |
    ///
    /// Units lapse, so that the request counts after all, if the [fallback](crate::OnStoreError) admitted them while the store
    /// failed, and if the settlement cannot be sent: it is sent once and never repeated. In another process, a cached denial may
    /// last up to a second longer.
    pub fn count_if(
        self,
        counts: impl Fn(&InnerResponse<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.counts.push(Arc::new(counts)))
    }

    /// Settles a request to the cost in units that its response has: by a header field of the inner service, or by the status. `None`
    /// leaves what the request took, but nothing if the inner service returned an error; 0 gives everything back.
    ///
    /// A request takes its [cost](crate::Rule::cost) before the inner service is called. If the response costs less, the difference goes
    /// back, by the rules of [`count_if`](Self::count_if), which goes first where both are set. If it costs more, the difference is
    /// taken as far as it is there; the rest lapses. So take what an expensive request costs, and give back.
    /// A request whose cost is 0 only checks: its response is not charged.
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota, Rule, key::header};
    ///
    /// let rule = Rule::new("tokens-per-key", Quota::sliding_window(100_000, MINUTE))
    ///     .cost(4_000)
    ///     .by(header("x-api-key"))
    ///     .cost_by_response(|response| response.header("x-tokens-used")?.parse().ok());
    /// # let _ = rule;
    /// ```
    ///
    /// The field stays in the response; remove it in an outer layer if clients should not see it.
    pub fn cost_by_response(
        self,
        cost: impl Fn(&InnerResponse<'_>) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| {
            settings.response_cost = Some(Arc::new(cost));
            settings.counts("units");
        })
    }

    /// Selects the rule's plan by name, for example from an extension that an outer middleware has set. `None` is the rule's own quota.
    /// So is an unknown name, and the first unknown name is an event at warn level.
    ///
    /// The name is a constant, an `Arc<str>` or a `String`: a function cannot return both constants and what it borrows from the head.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use tollgate::{Head, MINUTE, Quota, Rule, key::header};
    ///
    /// #[derive(Clone)]
    /// struct Account {
    ///     plan: Arc<str>,
    /// }
    ///
    /// fn class(head: &Head<'_>) -> Option<&'static str> {
    ///     head.headers.contains_key("x-partner").then_some("gold")
    /// }
    ///
    /// let rule = |name| {
    ///     let rule = Rule::new(name, Quota::gcra(60, MINUTE)).plan("gold", Quota::gcra(600, MINUTE));
    ///     rule.by(header("x-api-key"))
    /// };
    /// let of_account = |head: &Head<'_>| Some(Arc::clone(&head.extensions.get::<Account>()?.plan));
    /// let rules = [
    ///     rule("reads").plan_by(of_account),
    ///     rule("writes").plan_by(of_account),
    ///     rule("searches").plan_by(class),
    /// ];
    /// # let _ = rules;
    /// ```
    pub fn plan_by<P: AsRef<str>>(
        mut self,
        plan: impl Fn(&Head<'_>) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        let settings = self.set();
        settings.plan = Some(Arc::new(move |head, rule, unknown| {
            let Some(name) = plan(head) else { return 0 };
            let Some(number) = rule.plan_number(name.as_ref()) else {
                unknown(name.as_ref());
                return 0;
            };
            // A rule has fewer than 65 535 plans.
            number as u16
        }));
        self
    }

    /// Computes the quota of a request from its head. An outer middleware may, for example, read a tenant's limit from a database or a
    /// token and put it into an extension. If the closure returns `None`, the rule's own quota applies, or the plan that
    /// [`plan_by`](Self::plan_by) selects.
    ///
    /// It may be any quota of the rule's algorithm; of windows, sub-buckets and logs, with the rule's period;
    /// [`unlimited`](Quota::unlimited); or [`none`](Quota::none), which 0 units are too. A client whose quota changes keeps its
    /// usage, as with plans. On a shared store such a request is decided by the store, whatever the rule's
    /// [consistency](tollgate_core::Rule::consistency).
    ///
    /// With any other quota, the rule's own applies, and an event at error level says what is wrong: once for each mistake, of up to 64
    /// in a rule. So it is beyond 65 000 different quotas within ten minutes.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::extension_with};
    ///
    /// #[derive(Clone)]
    /// struct Tenant {
    ///     name: String,
    ///     calls_per_minute: u64,
    /// }
    ///
    /// let rule = Rule::new("per-tenant", Quota::gcra(60, MINUTE))
    ///     .by(extension_with(|tenant: &Tenant| Some(&tenant.name)))
    ///     .quota_by(|head| {
    ///         let tenant = head.extensions.get::<Tenant>()?;
    ///         Some(Quota::gcra(tenant.calls_per_minute, MINUTE))
    ///     });
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn quota_by(
        self,
        quota: impl Fn(&Head<'_>) -> Option<Quota> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| {
            settings.rule = settings.rule.clone().variable_quota();
            settings.quota = Some(Arc::new(quota));
        })
    }

    /// Applies the rule only if this is `true`: a closure, or one of the [conditions](crate::condition). Called twice, both must be.
    pub fn when(mut self, applies: impl Condition) -> Self {
        let (routes, applies) = self.condition(applies);
        let settings = self.set();
        settings.routes = settings.routes.and(&routes);
        settings.applies = Some(match settings.applies.take() {
            None => applies,
            Some(before) => Arc::new(move |head| before(head) && applies(head)),
        });
        self
    }

    /// Applies the rule only to requests whose key this is `true` for; the metrics count the others as skipped. Called twice,
    /// both must be.
    ///
    /// Unlike [`when`](Self::when) it is asked after the key was found: to enforce a rule for a part of the clients, say.
    pub fn when_key(self, applies: impl Fn(&KeyBuf) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| {
            settings.applies_to_key = Some(match settings.applies_to_key.take() {
                None => Arc::new(applies),
                Some(before) => Arc::new(move |key| before(key) && applies(key)),
            });
        })
    }

    /// Applies the rule only to requests whose key is in this [list](crate::key_list). Of a rule by
    /// [`client_ip`](crate::key::client_ip()) the whole address is looked up, before it is cut to a network. A key of several parts is
    /// in no list. With a quota of [none](Quota::none), a request that sends the key more than once gets a 400.
    ///
    /// ```
    /// use tollgate::{Quota, Rule, key::header, key_list::KeyList};
    ///
    /// let revoked = KeyList::new("revoked");
    /// let rule = Rule::new("revoked", Quota::none()).by(header("x-api-key")).when_listed(&revoked);
    /// # let _ = rule;
    /// ```
    pub fn when_listed(self, list: &KeyList) -> Self {
        let list = list.clone();
        let (nobody, ()) = http::Request::new(()).into_parts();
        match self.settings.key.clone() {
            Some(by) if by.client_address(&Head::from(&nobody)).is_some() => {
                self.when(move |head| list.has(&by, head) == Some(true))
            }
            _ => self.when_key(move |key| list.has_key(key)),
        }
    }

    /// Requests with this key count under the plan with this name, whatever [`plan_by`](Self::plan_by) and
    /// [`quota_by`](Self::quota_by) say, and where the rule's own quota is [unlimited](Quota::unlimited): a client's own limit. The key is as [`RateLimitLayer::key_of`](crate::RateLimitLayer::key_of) makes it.
    ///
    /// A million of them cost one table, and no comparison of text for each request.
    ///
    /// ```
    /// use tollgate::{Key, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::computed};
    ///
    /// let by_tenant = computed(|head| Some(Key::of(head.extensions.get::<&'static str>()?)));
    /// let rule = Rule::new("per-tenant", Quota::gcra(60, MINUTE))
    ///     .plan("launch-week", Quota::gcra(600, MINUTE))
    ///     .by(by_tenant)
    ///     .plan_for_key(Key::of("acme"), "launch-week");
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn plan_for_key(self, key: Key, plan: impl Into<Arc<str>>) -> Self {
        self.with(|settings| Arc::make_mut(&mut settings.plans_by_key).push((key, plan.into())))
    }

    /// Selects the plan by the key, for clients that are known by a hash of it, say. `None`: what [`plan_by`](Self::plan_by)
    /// says. So does an unknown name. A plan [for the key itself](Self::plan_for_key) goes first.
    pub fn plan_by_key(
        self,
        plan: impl Fn(&KeyBuf) -> Option<Arc<str>> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.plan_of_key = Some(Arc::new(plan)))
    }

    /// Lets a request that comes again cost this rule nothing, so that a client that retries is counted once: `id` finds the id of a
    /// request, which is known for `period`.
    ///
    /// A repeat has the same id, key, cost, method, path and query. It passes the rule also while the first request runs, and when
    /// nothing is left; at most [three times](crate::Rule::free_repeats). Other rules, slots, lists and blocks decide it as any request. A
    /// request without an id counts; so does one whose id is empty, is sent twice, has to be looked up, or is longer than 255 bytes.
    /// [`tollgate_core::Rule::idempotent`] says what holds of refunds, of outages, and how many ids are kept.
    ///
    /// Let your service answer a repeat from what it has stored: where it does the work again, an id is four requests for the price of
    /// one. Where a cost is known only afterwards, that of a repeat is not charged.
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota, Rule, key::header};
    ///
    /// let rule = Rule::new("orders", Quota::gcra(60, MINUTE))
    ///     .by(header("x-api-key"))
    ///     .idempotent(header("idempotency-key"), 10 * MINUTE);
    /// # let _ = rule;
    /// ```
    pub fn idempotent(self, id: impl KeyExtractor, period: Duration) -> Self {
        self.with(|settings| {
            settings.rule = settings.rule.clone().idempotent(period);
            settings.id = Some(Arc::new(id));
        })
    }

    /// Answers requests that this is `true` for in this way when the store fails, in place of the rule's own
    /// [`on_store_error`](crate::Rule::on_store_error): reads fail open and writes fail closed, on one budget. The first condition that
    /// is `true` counts.
    ///
    /// `Allow`, `Deny` or `Degraded`. While the store fails, a process counts one share or one cap of a rule, so that
    /// `LocalShare` and `Cap` can only be the rule's own answer.
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{MINUTE, OnStoreError, Quota, Rule, condition::method_in, key::header};
    ///
    /// let rule = Rule::new("per-key", Quota::gcra(600, MINUTE))
    ///     .on_store_error(OnStoreError::Allow)
    ///     .by(header("x-api-key"))
    ///     .on_store_error_when(method_in([Method::POST, Method::PUT, Method::DELETE]), OnStoreError::Deny);
    /// # let _ = rule;
    /// ```
    pub fn on_store_error_when(mut self, applies: impl Condition, answer: OnStoreError) -> Self {
        let (_, applies) = self.condition(applies);
        self.set().store_errors.push((applies, answer));
        self
    }

    /// The store itself decides requests for which this is `true`, whatever the rule's [`consistency`](crate::Rule::consistency). So writes
    /// may take exact units from the shared budget, while reads are served from leases of the same budget. If it is called twice,
    /// one `true` is enough.
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{
    ///     Consistency, MINUTE, Quota, Rule, condition::method_in, key::header, store::LeaseShare,
    /// };
    ///
    /// let rule = Rule::new("per-key", Quota::gcra(6_000, MINUTE))
    ///     .consistency(Consistency::Leased { share: LeaseShare::percent(10) })
    ///     .by(header("x-api-key"))
    ///     .exact_when(method_in([Method::POST, Method::PUT, Method::DELETE]));
    /// # let _ = rule;
    /// ```
    ///
    /// # Accuracy
    ///
    /// As [`CheckPolicy::exact`](tollgate_core::types::CheckPolicy::exact).
    pub fn exact_when(mut self, applies: impl Condition) -> Self {
        let (_, applies) = self.condition(applies);
        self.set().exact.push(applies);
        self
    }

    /// A condition with where it can be true. Its mistake is kept for the layer.
    fn condition(&mut self, condition: impl Condition) -> (Routes, Arc<dyn Condition>) {
        let known = KnownCondition::of(condition);
        let before = &mut self.set().condition_mistake;
        *before = before.take().or(known.mistake);
        (known.routes, known.holds)
    }

    /// Calls this with each request that the rule denies: for an audit of log-ins, or for a list of those to block. It gets the head
    /// (without its extensions for a rule [for handlers](crate::Rule::by_handler), and for messages), the key as the rule counts it, and the
    /// decision, which is that of all rules. The response waits for it, so it should be short. A shadow denies nothing.
    ///
    /// ```
    /// use std::{collections::HashSet, sync::{Arc, Mutex}};
    ///
    /// use tollgate::{Key, MINUTE, Quota, Rule, key::client_ip};
    ///
    /// let blocked: Arc<Mutex<HashSet<Key>>> = Arc::default();
    /// let block = Arc::clone(&blocked);
    /// let rule = Rule::new("log-ins", Quota::sliding_log(5, MINUTE))
    ///     .by(client_ip())
    ///     .on_denied(move |_head, key, _decision| {
    ///         block.lock().unwrap().insert(key.clone());
    ///     });
    /// # let _ = rule;
    /// ```
    pub fn on_denied(
        self,
        denied: impl Fn(&Head<'_>, &Key, &Decision) + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.on_denied = Some(Arc::new(denied)))
    }

    /// Lets requests pass uncounted if this is `true`: internal calls, health checks, test traffic. The metrics count them as
    /// skipped. Called twice, either is enough.
    pub fn exempt(mut self, exempt: impl Condition) -> Self {
        let (_, exempt) = self.condition(exempt);
        let settings = self.set();
        settings.exempt = Some(match settings.exempt.take() {
            None => exempt,
            Some(before) => Arc::new(move |head| before(head) || exempt(head)),
        });
        self
    }
}

tollgate_core::debug_fields!(RequestRule, it =>
    rule: it.settings.rule, missing: it.settings.missing
);
