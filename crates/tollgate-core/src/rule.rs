//! Rules: named quotas, and how they are meant.

use std::{iter, sync::Arc, time::Duration};

use crate::{
    algorithm_kind::AlgorithmKind,
    block::Block,
    check::Check,
    check_policy::OnStoreError,
    consistency::Consistency,
    error::{RuleError, RuleErrorKind},
    idempotency::Idempotency,
    key::KeyBuf,
    quota::Quota,
    quota_conflict::{debt_conflict, plan_conflict, wait_conflict},
    variable_quota::{CheckQuota, Part, VariableQuota},
};

/// What a rule does with its verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Denies what does not fit.
    #[default]
    Enforce,
    /// The rule is not there: nothing is counted or reported.
    Off,
    /// Decides and counts on a state of its own as if it were alone, reports, and denies nothing.
    Shadow,
    /// A second limit that is read on the state of the rule with this name, and never written.
    Threshold {
        /// The rule whose state is read.
        of: Arc<str>,
    },
}

/// A named quota, with its mode and its answer to a store failure. Plain data.
///
/// ```
/// use tollgate_core::{MINUTE, OnStoreError, Quota, Rule};
///
/// let rule = Rule::new("search-per-key", Quota::gcra(600, MINUTE).burst(50))
///     .plan("gold", Quota::gcra(6_000, MINUTE).burst(500))
///     .on_store_error(OnStoreError::Deny);
/// assert_eq!(rule.name(), "search-per-key");
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Shared by copies, which are seen to be equal at once: a swap of thousands of rules makes many of them.
    pub(crate) settings: Arc<Settings>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    name: Arc<str>,
    quota: Quota,
    plans: Vec<(Arc<str>, Quota)>,
    pub(crate) thresholds: Vec<(Arc<str>, Quota)>,
    cost: u64,
    pub(crate) mode: Mode,
    consistency: Consistency,
    on_store_error: OnStoreError,
    wait: Option<Duration>,
    pub(crate) debt: Option<u64>,
    /// How the accounts of a durable rule are called.
    pub(crate) durable: Option<NameFn>,
    pub(crate) denies_unwritten: bool,
    pub(crate) daily_usage: Option<NameFn>,
    credits: bool,
    pub(crate) max_waiting: MaxWaiting,
    variable: Option<VariableQuota>,
    block: Option<Block>,
    idempotent: Option<Duration>,
    free_repeats: u8,
    keeps_top_keys: bool,
    pub(crate) label: Option<NameFn>,
    subject_type: Option<Arc<str>>,
    pub(crate) unit: Option<Arc<str>>,
}

/// How an application calls keys. All are equal: what a closure does is not known.
#[derive(Clone)]
pub(crate) struct NameFn(pub(crate) Arc<dyn Fn(&KeyBuf) -> String + Send + Sync>);

impl NameFn {
    fn new(name: impl Fn(&KeyBuf) -> String + Send + Sync + 'static) -> Option<Self> {
        Some(Self(Arc::new(name)))
    }

    /// The account of a key: as much of its name as a ledger writes, in bytes. Clients may send long keys.
    pub(crate) fn account(&self, key: &KeyBuf) -> Arc<str> {
        let name = (self.0)(key);
        let mut end = name.len().min(200);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name[..end].into()
    }
}

impl PartialEq for NameFn {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for NameFn {}

crate::debug_fields!(NameFn);

/// How many requests may wait for a rule in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxWaiting {
    pub(crate) per_key: usize,
    pub(crate) in_all: usize,
}

/// Unless a rule says otherwise.
///
/// For one key a quarter of what a layer has room for: no client keeps the others from waiting.
pub(crate) const MAX_WAITING: MaxWaiting = MaxWaiting {
    per_key: 256,
    in_all: 16_384,
};

impl Rule {
    /// A rule with this name and quota: enforced, one unit a request.
    ///
    /// The name is the identity of the budget: the same name on one store is one budget, wherever it is used. It goes
    /// into headers, metrics and logs. Letters, digits and `_ . : / * -`, the first a letter or `*`, at most 64.
    ///
    /// Name and numbers are checked when the rule becomes part of a rule set.
    pub fn new(name: impl Into<Arc<str>>, quota: Quota) -> Self {
        let settings = Settings {
            name: name.into(),
            quota,
            plans: Vec::new(),
            thresholds: Vec::new(),
            cost: 1,
            mode: Mode::Enforce,
            consistency: Consistency::Exact,
            on_store_error: OnStoreError::LocalShare,
            wait: None,
            debt: None,
            durable: None,
            denies_unwritten: false,
            daily_usage: None,
            credits: false,
            max_waiting: MAX_WAITING,
            variable: None,
            block: None,
            idempotent: None,
            free_repeats: 3,
            keeps_top_keys: false,
            label: None,
            subject_type: None,
            unit: None,
        };
        Self {
            settings: Arc::new(settings),
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// The same numbers under another name, on a state of its own: without a block, without ids of requests, and without what is for
    /// single clients. For the crates of tollgate.
    #[doc(hidden)]
    pub fn twin(&self, name: impl Into<Arc<str>>) -> Self {
        let own = &self.settings;
        Self::new(name, own.quota).with(|twin| {
            twin.plans.clone_from(&own.plans);
            twin.cost = own.cost;
            twin.consistency = own.consistency;
            twin.on_store_error = own.on_store_error;
            twin.wait = own.wait;
            twin.unit.clone_from(&own.unit);
        })
    }

    /// Adds a plan: another quota under the same name, chosen per request. It has to be of the same algorithm, or
    /// [`unlimited`](Quota::unlimited). A window, a log and sub-buckets have to have the same period, and as many sub-buckets:
    /// units that are charged for an hour must not be forgotten after a minute. A bucket may have any rate and burst.
    ///
    /// A caller that changes plans keeps what it has used. One that may choose, and takes plans in turn, gets from all of
    /// them together what the largest limit allows, or of buckets the
    /// [largest burst and the fastest rate](crate::algorithm::gcra#two-limits-on-one-state). Two kinds of requests that are
    /// to be limited apart, such as reads and writes, are two rules.
    pub fn plan(self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        self.with(|settings| settings.plans.push((name.into(), quota)))
    }

    /// Makes other quotas of its own and of those of its plans: a part of each, say.
    pub fn map_quotas(self, of: impl Fn(Quota) -> Quota) -> Self {
        self.with(|settings| {
            settings.quota = of(settings.quota);
            for (_, quota) in &mut settings.plans {
                *quota = of(*quota);
            }
        })
    }

    /// Lets each check have a quota of its own, such as the limit of a tenant from a database or a token. See
    /// [`Limiter::quota_for`](crate::Limiter::quota_for).
    ///
    /// The rule's own quota applies to the others. What a client has used is carried over from one to the next as from
    /// [plan](Self::plan) to plan, and the same holds for one that may choose. On a shared store, a check that brings a quota
    /// is decided by the store, whatever the rule's [consistency](Self::consistency).
    pub fn variable_quota(self) -> Self {
        self.with(|settings| {
            settings.variable.get_or_insert_with(VariableQuota::new);
        })
    }

    /// Adds a threshold: a second limit read on this rule's state. It is reported under its own name, and denies nothing.
    pub fn threshold(self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        self.with(|settings| settings.thresholds.push((name.into(), quota)))
    }

    /// The names of its thresholds.
    pub fn threshold_names(&self) -> impl Iterator<Item = &str> {
        self.settings.thresholds.iter().map(|(name, _)| &**name)
    }

    /// The units that a request costs where nothing computes them: 1 by default, and at least that.
    pub fn cost(self, units: u64) -> Self {
        self.with(|settings| settings.cost = units)
    }

    /// Decides and counts as if alone, reports, and denies nothing.
    pub fn shadow(self) -> Self {
        self.with(|settings| settings.mode = Mode::Shadow)
    }

    /// Switches the rule off.
    pub fn off(self) -> Self {
        self.with(|settings| settings.mode = Mode::Off)
    }

    /// How exactly processes count together; for stores that are shared.
    pub fn consistency(self, consistency: Consistency) -> Self {
        self.with(|settings| settings.consistency = consistency)
    }

    /// Delays a request that does not fit now and will within `at_most`, instead of denying it: see
    /// [`algorithm::gcra`](crate::algorithm::gcra#waiting).
    ///
    /// For [`gcra`](Quota::gcra), [`token_bucket`](Quota::token_bucket), [`leaky_bucket`](Quota::leaky_bucket) and
    /// [`concurrent`](Quota::concurrent). `at_most` is to be below the timeout of your clients: what starts after a client has
    /// given up is wasted. Only the narrowest of several rules should wait: a shared rule that waits delays everybody.
    ///
    /// A layer waits, and so does [`Limiter::acquire_within`](crate::Limiter::acquire_within);
    /// [`Limiter::acquire`](crate::Limiter::acquire) says how long to wait. Units of a place in the queue come back only as long as
    /// it is the last: see [`Ticket`](crate::Ticket).
    pub fn wait(self, at_most: Duration) -> Self {
        self.with(|settings| settings.wait = Some(at_most))
    }

    /// How long requests [wait](Self::wait) for this rule at most; `None` if they are denied at once.
    #[must_use]
    pub fn at_most_wait(&self) -> Option<Duration> {
        self.settings.wait
    }

    /// Lets a key owe up to `at_most` units, where a cost is known only afterwards: what a [ticket](crate::Ticket) charges is taken in
    /// full even if less is left, and the next request waits until it is paid back. Without debt, what is not there lapses.
    ///
    /// In any time, the units that were taken and charged are at most what the quota admits in it, and `at_most`. What is beyond
    /// `at_most` lapses, and is [counted](crate::store::RuleStore::lapsed_units): take what requests that run at the same time may
    /// cost more than they took first. While the store fails, a charge goes to the [local share or cap](Self::on_store_error), which
    /// may be owed as much in each process. One that the store may have counted, or not, lapses.
    ///
    /// - A **bucket** refills what is owed before anything fits.
    /// - A **window**, of a calendar too: what was used beyond the limit begins the next windows as used units, until it is paid.
    ///
    /// Where the quota of a key changes (another plan, another version of the service), what is owed belongs to the quota under which
    /// units were last taken or charged. It says how soon all is paid back, whoever asks, until units are taken under another one;
    /// a quota that would let the request pass sooner (a larger limit, a faster bucket) takes it over with the first denial. A charge goes
    /// to the one with the larger limit.
    ///
    /// Not for logs, sub-buckets, [slots](Quota::concurrent), rules that [wait](Self::wait), and
    /// [`Eventual`](crate::Consistency::Eventual).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Retry, Rule};
    ///
    /// let store = MemoryStore::builder().clock(&ManualClock::new(1_700_000_040_000_000)).build();
    /// let rule = Rule::new("tokens", Quota::gcra(10_000, MINUTE)).cost(100).debt(20_000);
    /// let limiter = Limiter::new(store, [rule])?;
    /// let check = limiter.check("tokens", &Key::of("acme"))?;
    /// // Each request takes 100 tokens, and turns out to cost 9 000.
    /// for _ in 0..2 {
    ///     let decision = limiter.acquire(&[check]).ready().expect("memory answers at once");
    ///     limiter.ticket(&[check], &decision).settle(9_000);
    /// }
    /// let left = limiter.peek(&[check.with_cost(0)]).ready().expect("memory answers at once");
    /// assert_eq!((left.verdicts()[0].remaining(), left.verdicts()[0].debt()), (0, 8_000));
    /// // When the 8 000 are paid back and 100 are there.
    /// let denied = limiter.acquire(&[check]).ready().expect("memory answers at once");
    /// assert_eq!(denied.retry(), Retry::After(Duration::from_millis(48_600)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn debt(self, at_most: u64) -> Self {
        self.with(|settings| settings.debt = Some(at_most))
    }

    /// How many units a key may [owe](Self::debt); 0 without debt.
    #[inline]
    #[must_use]
    pub fn debt_of(&self) -> u64 {
        self.settings.debt.unwrap_or(0)
    }

    /// Gives a key a balance next to the quota: units that [`Limiter::grant`](crate::Limiter::grant) adds, with an end. A top-up that a
    /// customer has bought, or the goodwill of an operator.
    ///
    /// A request takes its whole cost from one place: the quota, or else the balance, and then its verdict has the source
    /// [`Credits`](crate::Source::Credits). What a [ticket](crate::Ticket) gives back goes there again, unless the balance has ended; what
    /// it charges is taken from the quota, then from the balance, and then becomes [debt](Self::debt). Where several rules decide, a
    /// balance is touched only if all let the request pass.
    ///
    /// The numbers of a verdict are those of the quota, and so is the time to retry. Shadows know no balance, and a
    /// [block](Self::block) holds for those who have one, too. Not for [slots](Quota::concurrent), rules that [wait](Self::wait), and
    /// [`Eventual`](crate::Consistency::Eventual).
    pub fn credits(self) -> Self {
        self.with(|settings| settings.credits = true)
    }

    /// Whether keys may have a balance: [`credits`](Self::credits).
    #[inline]
    #[must_use]
    pub fn has_credits(&self) -> bool {
        self.settings.credits
    }

    /// Writes what is used to a ledger, for budgets that outlive the store and can be explained line by line. `account` names the account
    /// of a key: its tenant, its contract. It is called when a process meets a key, and again after ten minutes without it. The name is
    /// stored in the clear. Give each key of a rule an account of its own: after a loss, each would begin with what all of its
    /// account have used. A key by header, cookie or query has two parts, the name of that field and its value, and those of a
    /// tuple follow each other: what names the first part of such a key has one account for all clients.
    ///
    /// The crate `tollgate-ledger` has the ledger; without one, this does nothing. No request waits for it, except the first of a key
    /// after the store has lost its states: see [`Verdict::forgotten`](crate::Verdict::forgotten). Shadows are not written.
    ///
    /// For [`fixed_window`](Quota::fixed_window) and [`calendar`](Quota::calendar), and their [credits](Self::credits), not under
    /// [`Eventual`](crate::Consistency::Eventual).
    ///
    /// ```
    /// use tollgate_core::{DAY, KeyBuf, Quota, Rule};
    ///
    /// let tenant = |key: &KeyBuf| match key.parts().last() {
    ///     Some((_, tenant)) => String::from_utf8_lossy(tenant).into_owned(),
    ///     None => String::from("nobody"),
    /// };
    /// let rule = Rule::new("units-per-tenant", Quota::fixed_window(1_000_000, DAY)).durable(tenant);
    /// # let _ = rule;
    /// ```
    pub fn durable(self, account: impl Fn(&KeyBuf) -> String + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.durable = NameFn::new(account))
    }

    /// Denies requests while the ledger of this [durable](Self::durable) rule is further behind than its bounds, as if the store failed.
    /// Default: they pass, and units for which there is no room are lost to the ledger, and counted.
    ///
    /// Call it after `durable`: it does nothing to a rule that is not.
    pub fn deny_unwritten(self) -> Self {
        self.with(|settings| settings.denies_unwritten = true)
    }

    /// Whether its usage is written to a [ledger](Self::durable).
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.settings.durable.is_some()
    }

    /// Counts usage by client and day for analytics, which a ledger writes: requests that were admitted, requests that this rule denied, and
    /// the units that it took, by `account` and day of UTC. `account` names a key, as in [`durable`](Self::durable); the name is stored in
    /// the clear, and what it calls `""` is not counted. For any algorithm, and shadows too. Count clients that were authenticated, or
    /// addresses: each name that a client invents is a row.
    ///
    /// It is no budget: nothing is read from there, and no request waits for it or is denied because of it. What a process has not
    /// written when it is killed is lost, and so is what has no room: see `tollgate-ledger`.
    ///
    /// ```
    /// use tollgate_core::{KeyBuf, MINUTE, Quota, Rule};
    ///
    /// let client = |key: &KeyBuf| match key.parts().last() {
    ///     Some((_, client)) => String::from_utf8_lossy(client).into_owned(),
    ///     None => String::new(),
    /// };
    /// let rule = Rule::new("search", Quota::gcra(60, MINUTE)).daily_usage(client);
    /// assert!(rule.has_daily_usage());
    /// ```
    pub fn daily_usage(self, account: impl Fn(&KeyBuf) -> String + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.daily_usage = NameFn::new(account))
    }

    /// Whether it counts [usage by client and day](Self::daily_usage).
    #[must_use]
    pub fn has_daily_usage(&self) -> bool {
        self.settings.daily_usage.is_some()
    }

    /// How many requests may wait for this rule at once, for one key and in all, in one process. Default: 256 and 16 384. Above
    /// that, a request that would wait is turned away: [`Reason::QueueFull`](crate::Reason::QueueFull).
    ///
    /// A layer has [a bound](https://docs.rs/tollgate/latest/tollgate/struct.RateLimitLayer.html#method.max_waiting) of its own,
    /// over all of its rules. Take less than that for one key, so that no client keeps the others from waiting: the default is a
    /// quarter. A limiter has room for 16 384 requests that wait in its queues, of whom 8 192 stand behind others; for the requests
    /// of a rule that says more, it has as much room as the rule says.
    ///
    /// ```
    /// use tollgate_core::{Quota, Rule, SECOND};
    ///
    /// let rule = Rule::new("exports", Quota::concurrent(3)).wait(5 * SECOND).max_waiting(10, 500);
    /// # let _ = rule;
    /// ```
    pub fn max_waiting(self, per_key: usize, in_all: usize) -> Self {
        self.with(|settings| settings.max_waiting = MaxWaiting { per_key, in_all })
    }

    /// Blocks a key for a time, which grows, after too many denials: see [`Block`]. Not for [slots](Quota::concurrent), nor for a rule
    /// without a limit.
    ///
    /// A shadow counts and reports as if it blocked. [`Limiter::reset`](crate::Limiter::reset) lifts a block and forgets its level.
    #[doc(alias = "ban")]
    pub fn block(self, block: Block) -> Self {
        self.with(|settings| settings.block = Some(block))
    }

    /// When it blocks keys, if it does.
    #[must_use]
    pub fn block_setting(&self) -> Option<&Block> {
        self.settings.block.as_ref()
    }

    /// Lets a request that comes again with the same [id](crate::Limiter::with_id) cost this rule nothing: a client that retries is
    /// counted once. An id is known for `period` from the first request with it that is admitted.
    ///
    /// A repeat has the id, the key and the cost of the first request. It passes the rule also while that one runs, and when nothing
    /// is left; at most [three times](Self::free_repeats), so that an id is no way around the rule. Further requests with the id count.
    /// Other rules, slots, lists and blocks decide a repeat as any request. Its [ticket](crate::Ticket) holds nothing: nothing
    /// comes back, and nothing is charged.
    ///
    /// If all units of the first request come back, its id is forgotten, and the next request with it counts. If a repeat was let
    /// through meanwhile, or the time of the id is over, the units stay taken: take a longer one than your requests run.
    ///
    /// Of a key, 64 ids are kept, then the oldest goes. Requests with an id are decided by the store, whatever the
    /// [consistency](Self::consistency); while the store fails, an id is not known, and its request counts. Not for
    /// [slots](Quota::concurrent), and not with [`wait`](Self::wait).
    ///
    /// Let your service answer a repeat from what it has stored: where it does the work again, an id is four requests for the price of
    /// one.
    ///
    /// ```
    /// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
    ///
    /// let rule = Rule::new("orders", Quota::gcra(1, MINUTE)).idempotent(10 * MINUTE);
    /// let limiter = Limiter::new(MemoryStore::new(), [rule])?;
    /// let order = |id: &str| -> Result<_, Box<dyn std::error::Error>> {
    ///     let check = limiter.check("orders", &Key::of("account-7"))?;
    ///     let check = limiter.with_id(check, &Key::of(id))?;
    ///     Ok(limiter.acquire(&[check]).ready().expect("memory answers at once"))
    /// };
    /// assert!(order("a")?.is_allowed());
    /// assert!(!order("b")?.is_allowed());
    /// let repeat = order("a")?;
    /// assert!(repeat.is_allowed() && repeat.is_repeat());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn idempotent(self, period: Duration) -> Self {
        self.with(|settings| settings.idempotent = Some(period))
    }

    /// How often a request may repeat one with the same [id](Self::idempotent) at no cost: up to 255 times. Default: 3.
    pub fn free_repeats(self, repeats: u8) -> Self {
        self.with(|settings| settings.free_repeats = repeats)
    }

    pub(crate) fn idempotency(&self) -> Option<Idempotency> {
        Some(Idempotency {
            period: self.settings.idempotent?,
            free_repeats: self.settings.free_repeats,
        })
    }

    /// For how long an id is [known](Self::idempotent), and how often its request may be repeated at no cost.
    #[must_use]
    pub fn idempotent_for(&self) -> Option<(Duration, u8)> {
        let ids = self.idempotency()?;
        Some((ids.period, ids.free_repeats))
    }

    /// What to answer when the store fails.
    pub fn on_store_error(self, answer: OnStoreError) -> Self {
        self.with(|settings| settings.on_store_error = answer)
    }

    /// Keeps the keys that come most often, with their requests, denials and units of the last minutes, for
    /// [`Limiter::top_keys`](crate::Limiter::top_keys). A key is shown by the first letters of what stands for it in the store.
    ///
    /// It takes about 33 KB once the rule is used, and some nanoseconds of each check.
    pub fn top_keys(self) -> Self {
        self.with(|settings| settings.keeps_top_keys = true)
    }

    /// Keeps the [top keys](Self::top_keys), and shows each by what `label` calls it: an account's number, an address with its
    /// end masked. It is shown in top keys and in warnings of hot keys, so it should not be a secret. It is called for
    /// keys that come often, not for each request. The first 64 characters of a label are kept, without those that break a line.
    ///
    /// ```
    /// use tollgate_core::{Key, KeyBuf, Limiter, MINUTE, MemoryStore, Quota, Rule};
    ///
    /// let account = |key: &KeyBuf| match key.parts().last() {
    ///     Some((_, account)) => String::from_utf8_lossy(account).into_owned(),
    ///     None => String::new(),
    /// };
    /// let rule = Rule::new("api", Quota::gcra(60, MINUTE)).label(account);
    /// let limiter = Limiter::new(MemoryStore::new(), [rule])?;
    /// for _ in 0..5 {
    ///     let _ = limiter.try_acquire("api", &Key::of("account-7"))?;
    /// }
    /// let top = limiter.top_keys("api", 10)?;
    /// assert_eq!(top[0].label.as_deref(), Some("account-7"));
    /// assert_eq!((top[0].at_least, top[0].at_most), (5, 5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn label(self, label: impl Fn(&KeyBuf) -> String + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.label = NameFn::new(label))
            .top_keys()
    }

    /// What the rule counts by: `ip`, `api_key`, `tenant`. It is the label `subject_type` of the rule's metrics, a fixed word and
    /// nothing of a request. Default: in a layer what the rule's key says of itself, elsewhere `none`.
    pub fn subject_type(self, name: impl Into<Arc<str>>) -> Self {
        self.with(|settings| settings.subject_type = Some(name.into()))
    }

    /// The [type of subject](Self::subject_type), if it was named.
    #[must_use]
    pub fn subject_type_name(&self) -> Option<&str> {
        self.settings.subject_type.as_deref()
    }

    /// What the rule counts, in the plural: `tokens`, `bytes`, `words`. A layer says so where it tells clients about the limit. Default:
    /// `requests`, `messages` in a layer for them, and `units` where one costs something other than 1.
    pub fn unit(self, name: impl Into<Arc<str>>) -> Self {
        self.with(|settings| settings.unit = Some(name.into()))
    }

    /// The [unit](Self::unit), if it was named.
    #[must_use]
    pub fn unit_name(&self) -> Option<&str> {
        self.settings.unit.as_deref()
    }

    /// Whether it keeps its [top keys](Self::top_keys).
    #[must_use]
    pub fn keeps_top_keys(&self) -> bool {
        self.settings.keeps_top_keys
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The name, shared.
    #[must_use]
    pub fn shared_name(&self) -> &Arc<str> {
        &self.settings.name
    }

    /// The quota of requests that choose no plan.
    pub fn quota(&self) -> &Quota {
        &self.settings.quota
    }

    /// The quota under number `plan`: that of a plan, or one that a check has [brought along](Self::variable_quota). 0, and any
    /// number there is no quota for, is the rule's own.
    pub fn quota_under(&self, plan: usize) -> Quota {
        let brought = |number: usize| self.settings.variable.as_ref()?.quota(number);
        let number = plan.checked_sub(self.quotas());
        number
            .and_then(brought)
            .unwrap_or_else(|| *self.quota_of(plan))
    }

    /// The limit of the quota [under](Self::quota_under) number `plan`; `None` if it has none.
    #[inline]
    #[must_use]
    pub fn limit_under(&self, plan: usize) -> Option<u64> {
        let limit = |quota: &Quota| (!quota.is_unlimited()).then(|| quota.limit());
        match plan {
            0 => limit(&self.settings.quota),
            _ => limit(&self.quota_under(plan)),
        }
    }

    /// Whether checks may bring a quota along.
    #[must_use]
    pub fn has_variable_quota(&self) -> bool {
        self.settings.variable.is_some()
    }

    /// Whether a check has this quota from here, and its number was not given to another one since.
    pub(crate) fn has_given_out(&self, quota: CheckQuota) -> bool {
        let number = usize::from(quota.plan).checked_sub(self.quotas());
        let serial = |number| self.settings.variable.as_ref()?.serial(number);
        number.and_then(serial) == Some(quota.serial)
    }

    /// The same quotas of checks as `rule` has, shared by these instances; or `cap` in place of each.
    pub(crate) fn with_quotas_of(self, rule: &Self, part: Part) -> Self {
        let variable = rule.settings.variable.as_ref();
        self.with(|settings| settings.variable = variable.map(|it| it.in_part(part)))
    }

    /// A quota for a check of this rule: see [`Limiter::quota_for`](crate::Limiter::quota_for). One of 0 units is [none](Quota::none).
    ///
    /// # Errors
    ///
    /// The rule's quota is [not variable](Self::variable_quota); a quota of another algorithm or another period, or one that
    /// [`Quota::validate`] refuses; too many different quotas ([`TooManyQuotas`](RuleErrorKind::TooManyQuotas)).
    pub fn quota_for(&self, quota: Quota) -> Result<CheckQuota, RuleError> {
        let quota = quota.or_none();
        let Some(variable) = &self.settings.variable else {
            return Err(self.error(
                RuleErrorKind::Plan,
                "a check cannot bring a quota along; add variable_quota() to the rule",
            ));
        };
        if let Some(plan) = self.all_quotas().position(|it| *it == quota) {
            // A rule has fewer than 65 535 plans.
            return Ok(CheckQuota::of_plan(plan as u16));
        }
        let numbered = |(number, serial)| CheckQuota {
            // There are as few numbers as are left.
            plan: self.quotas() as u16 + number,
            serial,
        };
        if let Some(known) = variable.known(&quota) {
            return Ok(numbered(known));
        }
        let wrong = |message| Err(self.error(RuleErrorKind::Quota, message));
        if let Err(error) = quota.validate() {
            return wrong(format!("the quota of a check: {error}"));
        }
        let limited = self.all_quotas().find(|quota| quota.has_state());
        if limited.is_none() && quota.has_state() {
            return wrong(format!(
                "the rule's own quota is {}, so it has no algorithm that the quota of a check could be of; give it one",
                self.quota().algorithm()
            ));
        }
        if let Some(difference) = limited.and_then(|limited| plan_conflict(&quota, limited)) {
            return wrong(format!("the quota of a check {difference}"));
        }
        let conflict = self
            .settings
            .wait
            .and_then(|wait| wait_conflict(&quota, wait))
            .or_else(|| debt_conflict(&quota, self.settings.debt?));
        if let Some(conflict) = conflict {
            return wrong(format!("the quota of a check: {conflict}"));
        }
        let most = usize::from(u16::MAX) - self.quotas();
        variable.add(quota, most).map(numbered).ok_or_else(|| {
            self.error(
                RuleErrorKind::TooManyQuotas,
                format!(
                    "checks have brought {most} different quotas along in ten minutes; round them"
                ),
            )
        })
    }

    /// The quota of plan number `plan`; 0, and any number there is no plan for, is the rule's own. One that a check has
    /// brought along is found by [`quota_under`](Self::quota_under).
    pub fn quota_of(&self, plan: usize) -> &Quota {
        plan.checked_sub(1)
            .and_then(|plan| self.settings.plans.get(plan))
            .map_or(&self.settings.quota, |(_, quota)| quota)
    }

    /// The name of plan number `plan`, `None` for the rule's own quota.
    #[must_use]
    pub fn plan_name(&self, plan: usize) -> Option<&str> {
        let (name, _) = self.settings.plans.get(plan.checked_sub(1)?)?;
        Some(name)
    }

    /// The number of the plan with this name, counted from 1.
    #[must_use]
    pub fn plan_number(&self, name: &str) -> Option<usize> {
        let index = self.plan_names().position(|plan| plan == name)?;
        Some(index + 1)
    }

    /// The number of quotas: the rule's own and its plans.
    #[must_use]
    pub fn quotas(&self) -> usize {
        self.settings.plans.len() + 1
    }

    /// The rule's own quota, and those of its plans in their order.
    pub(crate) fn all_quotas(&self) -> impl Iterator<Item = &Quota> {
        let plans = self.settings.plans.iter().map(|(_, quota)| quota);
        iter::once(&self.settings.quota).chain(plans)
    }

    /// Whether it counts anything: one of its quotas has a limit.
    pub fn is_limited(&self) -> bool {
        self.all_quotas().any(Quota::has_state)
    }

    /// The algorithm that writes its states, the same for all of its quotas; `None` where nothing is counted.
    pub(crate) fn state_machine(&self) -> Option<AlgorithmKind> {
        self.all_quotas()
            .find_map(|quota| quota.algorithm().state_machine())
    }

    /// Whether requests hold slots of it until they end: its quotas are [concurrent](Quota::concurrent).
    #[must_use]
    pub fn has_slots(&self) -> bool {
        self.state_machine() == Some(AlgorithmKind::Concurrent)
    }

    /// Whether a check of it may be of a limit of [none](Quota::none).
    pub(crate) fn may_be_none(&self) -> bool {
        self.has_variable_quota() || self.all_quotas().any(Quota::is_none)
    }

    /// The names of the plans.
    pub fn plan_names(&self) -> impl Iterator<Item = &str> {
        self.settings.plans.iter().map(|(name, _)| &**name)
    }

    /// The units of a request where nothing computes them.
    #[must_use]
    pub fn fixed_cost(&self) -> u64 {
        self.settings.cost
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> &Mode {
        &self.settings.mode
    }

    /// Whether the rule's denials deny.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.settings.mode == Mode::Enforce
    }

    /// How exactly processes count together.
    #[must_use]
    pub fn consistency_of(&self) -> Consistency {
        self.settings.consistency
    }

    /// The answer to a store failure.
    #[must_use]
    pub fn store_error_answer(&self) -> OnStoreError {
        self.settings.on_store_error
    }

    /// The answer to a store failure for this check of it.
    #[must_use]
    pub fn answer_to_failure(&self, check: &Check) -> OnStoreError {
        let answer = check.policy().store_error_answer();
        answer.unwrap_or(self.settings.on_store_error)
    }

    pub(crate) fn error(&self, kind: RuleErrorKind, message: impl Into<String>) -> RuleError {
        RuleError::new(kind, &*self.settings.name, message)
    }
}
