//! What code binds for documents to use by name.

use std::{collections::BTreeMap, sync::Arc};

use tollgate::{
    Head, Key, Quota,
    key::{ClientIp, KeyBuf, KeyExtractor, client_ip},
    key_list::KeyList,
    service::InnerResponse,
};

use crate::list_file::ListFiles;
#[cfg(feature = "redis")]
use crate::signing_key::SigningKey;

pub(crate) type ParseKey = dyn Fn(&str) -> Option<Key> + Send + Sync;
pub(crate) type CostFn = dyn Fn(&Head<'_>) -> u64 + Send + Sync;
pub(crate) type PlanFn = dyn Fn(&Head<'_>) -> Option<Arc<str>> + Send + Sync;
pub(crate) type QuotaFn = dyn Fn(&Head<'_>) -> Option<Quota> + Send + Sync;
/// The keyed hash of a client's key under the rule with this name.
pub(crate) type HashKey = dyn Fn(&str, &KeyBuf) -> u128 + Send + Sync;
pub(crate) type Predicate = dyn Fn(&Head<'_>) -> bool + Send + Sync;
pub(crate) type ResponseFn = dyn Fn(&InnerResponse<'_>) -> bool + Send + Sync;
pub(crate) type ResponseCostFn = dyn Fn(&InnerResponse<'_>) -> Option<u64> + Send + Sync;

/// Where a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Side {
    #[default]
    Service,
    /// In `tollgate-server`, which proxies ask.
    Edge,
}

/// Names that a document may use in addition to the built-in ones: for what needs code.
///
/// A document cannot run code, and the code does not know the numbers.
///
/// ```
/// use tollgate_rules::{Bindings, Format, RuleDocument};
/// use tollgate::{Key, key::computed};
///
/// #[derive(Clone)]
/// struct Caller {
///     tenant: String,
///     plan: &'static str,
/// }
///
/// let by_tenant = computed(|head| Some(Key::of(&head.extensions.get::<Caller>()?.tenant)));
/// let bindings = Bindings::new()
///     .key_with_text("tenant", by_tenant, |text| Some(Key::of(text)))
///     .plan("plan", |head| head.extensions.get::<Caller>().map(|caller| caller.plan))
///     .cost("words", |head| head.uri.query().map_or(1, |query| 1 + query.split('+').count() as u64))
///     .condition("beta", |head| head.headers.contains_key("x-beta"));
///
/// let text = r#"
///     version = 1
///
///     [[rules]]
///     name = "search-per-tenant"
///     limit = "20/s burst 50"
///     by = "tenant"
///     when = "beta"
///     cost = "words"
///     plan = "plan"
///     plans = { gold = "200/s burst 500" }
///
///     [[overrides]]
///     rule = "search-per-tenant"
///     key = "acme"
///     limit = "500/s burst 1000"
/// "#;
/// assert_eq!(RuleDocument::parse(text, Format::Toml, &bindings)?.rules().len(), 1);
/// # Ok::<(), tollgate_rules::DocumentError>(())
/// ```
#[must_use]
#[derive(Clone, Default)]
pub struct Bindings {
    pub(crate) keys: BTreeMap<String, BoundKey>,
    pub(crate) costs: BTreeMap<String, Arc<CostFn>>,
    pub(crate) plans: BTreeMap<String, Arc<PlanFn>>,
    pub(crate) quotas: BTreeMap<String, Arc<QuotaFn>>,
    pub(crate) conditions: BTreeMap<String, Arc<Predicate>>,
    pub(crate) response_conditions: BTreeMap<String, Arc<ResponseFn>>,
    pub(crate) response_costs: BTreeMap<String, Arc<ResponseCostFn>>,
    pub(crate) lists: BTreeMap<String, KeyList>,
    /// Those of documents, which name them.
    pub(crate) list_files: Arc<ListFiles>,
    /// The document is going to be read elsewhere.
    pub(crate) is_push: bool,
    /// How addresses are found: as code says, or else as a document does.
    pub(crate) client_ip: Option<ClientIp>,
    pub(crate) side: Side,
    pub(crate) peers_are_clients: bool,
    /// For overrides that name the hash of a key.
    pub(crate) hash_key: Option<Arc<HashKey>>,
}

/// An extractor with the text form of its keys.
#[derive(Clone)]
pub(crate) struct BoundKey {
    pub(crate) extractor: Arc<dyn KeyExtractor>,
    pub(crate) parse: Option<Arc<ParseKey>>,
}

/// What code computes of a request or a response, each kind under names of its own.
macro_rules! binders {
    ($($(#[$doc:meta])* $name:ident in $map:ident: $code:ty;)*) => {
        impl Bindings {
            $($(#[$doc])*
            pub fn $name(mut self, name: impl Into<String>, $name: $code) -> Self {
                self.$map.insert(name.into(), Arc::new($name));
                self
            })*
        }
    };
}

binders! {
    /// Binds the cost of a request in units, for `cost = "words"`. See
    /// [`RequestRule::cost_by`](tollgate::RequestRule::cost_by).
    cost in costs: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static;

    /// Binds the quota of a request, for `quota_by = "tenant-quota"`: a number that a tenant has in a database or in a token.
    /// `None` is the rule's plan or its own limit. See [`RequestRule::quota_by`](tollgate::RequestRule::quota_by) for the quotas
    /// that a rule takes.
    ///
    /// An override takes precedence, and a switch of `50%` halves it like every other limit.
    ///
    /// ```
    /// use tollgate::{MINUTE, Quota};
    /// use tollgate_rules::{Bindings, Format, RuleDocument};
    ///
    /// #[derive(Clone)]
    /// struct Tenant {
    ///     calls_per_minute: u64,
    /// }
    ///
    /// let bindings = Bindings::new().quota("tenant-quota", |head| {
    ///     let tenant = head.extensions.get::<Tenant>()?;
    ///     Some(Quota::gcra(tenant.calls_per_minute, MINUTE))
    /// });
    /// let text = r#"
    ///     version = 1
    ///     [[rules]]
    ///     name = "per-tenant"
    ///     limit = "60/min"
    ///     by = "header:x-tenant"
    ///     quota_by = "tenant-quota"
    /// "#;
    /// assert_eq!(RuleDocument::parse(text, Format::Toml, &bindings)?.rules().len(), 1);
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    quota in quotas: impl Fn(&Head<'_>) -> Option<Quota> + Send + Sync + 'static;

    /// Binds a condition, for `when = "beta"`.
    condition in conditions: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static;

    /// Binds a condition on the response of the service, for `count_if = "wrong-password"`: see
    /// [`RequestRule::count_if`](tollgate::RequestRule::count_if). Statuses and headers need none:
    /// `count_if = { status = [401, 403] }`.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, RuleDocument};
    ///
    /// let bindings = Bindings::new().response_condition("slow", |response| {
    ///     let millis = response.header("x-millis").and_then(|value| value.parse::<u64>().ok());
    ///     millis.is_none_or(|millis| millis > 500)
    /// });
    /// let text = r#"
    ///     version = 1
    ///     [[rules]]
    ///     name = "slow-queries"
    ///     limit = "sliding_log 10/min"
    ///     by = "header:x-api-key"
    ///     count_if = "slow"
    /// "#;
    /// assert_eq!(RuleDocument::parse(text, Format::Toml, &bindings)?.rules().len(), 1);
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    response_condition in response_conditions: impl Fn(&InnerResponse<'_>) -> bool + Send + Sync + 'static;

    /// Binds what a request has cost in units by its response, for `cost_by_response = "tokens"`: see
    /// [`RequestRule::cost_by_response`](tollgate::RequestRule::cost_by_response). A number in a header field needs none:
    /// `cost_by_response = { header = "x-tokens-used" }`.
    response_cost in response_costs: impl Fn(&InnerResponse<'_>) -> Option<u64> + Send + Sync + 'static;
}

impl Bindings {
    /// The built-in names alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds a key, for `by = "tenant"`.
    ///
    /// An override names a key as text: where documents may override limits of this key, bind it with
    /// [`key_with_text`](Self::key_with_text).
    pub fn key(self, name: impl Into<String>, extractor: impl KeyExtractor) -> Self {
        self.bind_key(name.into(), Arc::new(extractor), None)
    }

    /// Binds a key, and makes it from the text in an override: the same key as the extractor makes for that client. `None`:
    /// the text is no key.
    pub fn key_with_text(
        self,
        name: impl Into<String>,
        extractor: impl KeyExtractor,
        parse: impl Fn(&str) -> Option<Key> + Send + Sync + 'static,
    ) -> Self {
        self.bind_key(name.into(), Arc::new(extractor), Some(Arc::new(parse)))
    }

    fn bind_key(
        mut self,
        name: String,
        extractor: Arc<dyn KeyExtractor>,
        parse: Option<Arc<ParseKey>>,
    ) -> Self {
        self.keys.insert(name, BoundKey { extractor, parse });
        self
    }

    /// Binds the plan of a request by name, for `plan = "plan"`. See
    /// [`RequestRule::plan_by`](tollgate::RequestRule::plan_by).
    pub fn plan<P: AsRef<str>>(
        mut self,
        name: impl Into<String>,
        plan: impl Fn(&Head<'_>) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        let plan = move |head: &Head<'_>| plan(head).map(|plan| plan.as_ref().into());
        self.plans.insert(name.into(), Arc::new(plan));
        self
    }

    /// Binds a list of keys and networks by its name, for `when = { in_list = "partners", by = "client_ip" }`.
    /// [`ListFile`](crate::ListFile) has one that follows a file, and so has a document in a file that names it:
    /// `lists.partners = { file = "partners.txt" }`.
    pub fn list(mut self, list: &KeyList) -> Self {
        self.lists.insert(list.name().to_owned(), list.clone());
        self
    }

    /// How `client_ip` and `client_in` find the client's address: behind proxies, with the settings of
    /// [`client_ip`](tollgate::key::client_ip()). Default: what the document says in its table `client_ip`, or else the socket's peer.
    /// A document with that table is wrong where the code says it.
    pub fn client_ip(mut self, client_ip: ClientIp) -> Self {
        self.client_ip = Some(client_ip);
        self
    }

    /// Reads documents as `tollgate-server` does, which decides for proxies: rules with `at = "service"` are off, and those with
    /// `at = "edge"` are not. What a proxy cannot do is a mistake of the other rules, and they may count by a
    /// [`Descriptor`](crate::operators::Descriptor). The table `client_ip` is for services, where [`client_ip`](Self::client_ip) is called.
    ///
    /// Default: as a service does.
    pub fn at_edge(mut self) -> Self {
        self.side = Side::Edge;
        self
    }

    /// The peer of each request is its client, whatever a document's table `client_ip` says: where requests are those of a log, whose
    /// server has found the address.
    pub fn peers_are_clients(mut self) -> Self {
        self.peers_are_clients = true;
        self.client_ip(client_ip())
    }

    /// The secret by which overrides name keys by their hash, as in documents that were pushed to Redis:
    /// `key = { hash = "…" }`. Rules in [Redis](crate::redis) have their own; one that is given here is taken in its place, to follow
    /// them as well as to push: give it to all processes, or to none.
    #[cfg(feature = "redis")]
    pub fn secret(mut self, secret: &tollgate_redis::Secret) -> Self {
        self.hash_key = Some(SigningKey::new(secret).hashing());
        self
    }

    /// An empty list with this name of hashes of keys, which `tollgate key hash` makes with the same secret. Who reads the list, or the
    /// file that it [follows](crate::ListFile), does not have the keys.
    ///
    /// ```
    /// use tollgate_redis::Secret;
    /// use tollgate_rules::Bindings;
    ///
    /// let secret = Secret::from_bytes(b"an example of a secret of 32 bytes")?;
    /// let revoked = Bindings::hashed_list("revoked", &secret);
    /// revoked.set(["9f86d081884c7d659a2feaa0c55ad015"])?;
    /// let bindings = Bindings::new().list(&revoked);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "redis")]
    pub fn hashed_list(name: &str, secret: &tollgate_redis::Secret) -> KeyList {
        hashed_list(name, SigningKey::new(secret).hashing())
    }

    /// Whether the table `client_ip` of a document is for the services behind the reader.
    pub(crate) fn is_of_services(&self) -> bool {
        self.side == Side::Edge || self.peers_are_clients
    }

    pub(crate) fn client_address(&self) -> ClientIp {
        self.client_ip.clone().unwrap_or_else(client_ip)
    }
}

/// A list of hashes of keys.
pub(crate) fn hashed_list(name: &str, hash_key: Arc<HashKey>) -> KeyList {
    // Never the name of a rule, which has no space.
    let of_list = format!("list {name}");
    KeyList::hashed(name, move |entry| {
        let mut part = KeyBuf::new();
        part.push(tollgate::key::PartKind::VALUE, entry);
        hash_key(&of_list, &part)
    })
}

tollgate_core::debug_fields!(Bindings, it => keys: it.keys.keys(), lists: it.lists.keys());
