//! The layer: rules on a store, and how clients learn about them.

use std::{sync::Arc, time::Duration};

use tollgate_core::{Key, KeyBuf, Limiter, MemoryStore, Quota, RuleError, Store};
use tower_layer::Layer;

use crate::{
    head::Head,
    key::{Extracted, client_ip},
    rate_limit::{
        live_config::LiveConfig,
        rules_handle::RulesHandle,
        service::RateLimit,
        settings::{Settings, common_setters, live_layer, request_setters},
        validation::refuse_all_off,
    },
    rule::{KeyedRule, RequestRule, Rule},
};

/// Limits the requests to a service.
///
/// Cheap to clone; clones share everything, and so do the services it makes.
///
/// See the [module documentation](crate).
#[must_use = "a layer limits nothing until a service is wrapped in it"]
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    config: Arc<LiveConfig>,
}

impl RateLimitLayer {
    /// Limits by these rules, with their state in `store`.
    ///
    /// All rules are decided together: a request passes all of them, or none is debited.
    ///
    /// # Errors
    ///
    /// A rule that cannot be used, or that the store cannot serve; a rule name that another live layer or limiter on this
    /// store has bound to another quota; rules that are all [off](tollgate_core::Rule::off), which would limit nothing. The
    /// error names the rule and says what would be right.
    pub fn new(
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        Self::replacing(&[], store, rules)
    }

    /// As [`new`](Self::new), but all rules may be [off](tollgate_core::Rule::off): for rules that a document or a switch turns on
    /// and off.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn switchable(
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        Ok(Self {
            config: LiveConfig::new(&[], store, |_| Ok(()), rules)?,
        })
    }

    /// Limits by these rules in place of those of other layers and limiters on the same store, which may have other quotas under
    /// the same names: for a reload. Used units stay used. See
    /// [`Limiter::replacing`](tollgate_core::Limiter::replacing).
    ///
    /// If several layers use a name, replace them all at once, then create the others again.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
    ///
    /// let store = MemoryStore::new();
    /// let rule = |limit| Rule::new("per-key", Quota::gcra(limit, MINUTE)).by(header("x-api-key"));
    /// let old = RateLimitLayer::new(store.clone(), [rule(60)])?;
    /// assert!(RateLimitLayer::new(store.clone(), [rule(90)]).is_err());
    /// let new = RateLimitLayer::replacing(&[&old.limiter()], store, [rule(90)])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); and a limiter of another store among the replaced.
    pub fn replacing(
        replaced: &[&Limiter],
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        let rules: Vec<RequestRule> = rules.into_iter().map(Into::into).collect();
        refuse_all_off(&rules)?;
        Ok(Self {
            config: LiveConfig::new(replaced, store, |_| Ok(()), rules)?,
        })
    }

    /// Limits each client address to this many requests per period: the shortest way to a limit. All of them may come at once.
    ///
    /// It is `new` with one rule `per-ip`, a [`Quota::gcra`] by [`client_ip()`], on a [`MemoryStore`] of its own. So the address is
    /// the socket's peer: behind a proxy, that is the proxy, and all clients together would have one limit. Then use
    /// [`new`](Self::new) with the [settings](crate::key::ClientIp) of `client_ip()`.
    ///
    /// ```
    /// use tollgate::{MINUTE, RateLimitLayer};
    ///
    /// let limits = RateLimitLayer::per_ip(60, MINUTE)?;
    /// assert_eq!(limits.limiter().rules().rules()[0].quota().to_string(), "gcra 60/min");
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Numbers that [`Quota::validate`] refuses, such as a limit or a period of 0.
    pub fn per_ip(limit: u64, period: Duration) -> Result<Self, RuleError> {
        let rule = Rule::new("per-ip", Quota::gcra(limit, period)).by(client_ip());
        Self::new(MemoryStore::new(), [rule])
    }

    /// The same rules with these settings.
    pub(crate) fn with_settings(self, settings: &Settings) -> Result<Self, RuleError> {
        Ok(Self {
            config: self.config.with_settings(settings.clone())?,
        })
    }

    /// The key under which the rule with this name counts requests with this head, for
    /// [`Limiter::peek`](tollgate_core::Limiter::peek) and [`reset`](tollgate_core::Limiter::reset). To reset a client, build a
    /// head like its own. The key holds its kind as well, so `Key::of("acme")` is not the client whose header says `acme`.
    ///
    /// `None` if there is no such rule or no key, or if the key is looked up: use
    /// [`look_up_key_of`](Self::look_up_key_of).
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
    ///
    /// let rule = Rule::new("per-key", Quota::gcra(60, MINUTE)).by(header("x-api-key"));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// let request = http::Request::get("/").header("x-api-key", "acme.k1").body(())?;
    /// let key = layer.key_of("per-key", &request.into_parts().0).expect("it has a key");
    /// let had_a_state = layer.limiter().reset("per-key", &key)?.ready();
    /// assert!(matches!(had_a_state, Some(Ok(false))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key_of<'a>(&self, rule: &str, head: impl Into<Head<'a>>) -> Option<Key> {
        let mut key = KeyBuf::new();
        let config = self.config.load();
        match config
            .rules
            .extractor(rule)?
            .extract(&head.into(), &mut key)
        {
            Extracted::Key => Some(key.into()),
            Extracted::Nothing(_) | Extracted::Later(_) => None,
        }
    }

    /// [`key_of`](Self::key_of) for keys that may be looked up: it waits for the look-up.
    ///
    /// `None` if there is no such rule or no key, or if the look-up fails.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::look_up};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // In a service, a query to a database.
    /// let by_tenant = look_up(|head| {
    ///     let api_key = head.headers.get("x-api-key").cloned();
    ///     async move { (api_key? == "k-1").then(|| "acme".to_owned()) }
    /// });
    /// let rule = Rule::new("per-tenant", Quota::gcra(60, MINUTE)).by(by_tenant);
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// let head = http::Request::get("/").header("x-api-key", "k-1").body(())?.into_parts().0;
    /// assert!(layer.key_of("per-tenant", &head).is_none());
    /// let key = layer.look_up_key_of("per-tenant", &head).await.expect("it is found");
    /// let had_a_state = layer.limiter().reset("per-tenant", &key)?.await?;
    /// assert!(!had_a_state);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn look_up_key_of<'a>(&self, rule: &str, head: impl Into<Head<'a>>) -> Option<Key> {
        let mut key = KeyBuf::new();
        let extracted = {
            let config = self.config.load();
            config
                .rules
                .extractor(rule)?
                .extract(&head.into(), &mut key)
        };
        match extracted {
            Extracted::Key => Some(key.into()),
            Extracted::Nothing(_) => None,
            Extracted::Later(answer) => answer.await.ok().map(Key::from),
        }
    }

    /// The configuration that its services share.
    pub(crate) fn live(&self) -> Arc<LiveConfig> {
        Arc::clone(&self.config)
    }

    /// Sends the denials that rules [hold back](crate::RequestRule::slow_denials), in all services of this layer and its clones, and holds
    /// none from now on: a graceful shutdown would wait for them.
    ///
    /// ```no_run
    /// # async fn end_of_the_service() {}
    /// # async fn serve(listener: tokio::net::TcpListener, rules: [tollgate::RequestRule; 1]) -> Result<(), Box<dyn std::error::Error>> {
    /// # use {axum::Router, tollgate::{MemoryStore, RateLimitLayer}};
    /// let limits = RateLimitLayer::new(MemoryStore::new(), rules)?;
    /// let app = Router::new().layer(limits.clone());
    /// let end = async move {
    ///     end_of_the_service().await;
    ///     limits.end_slow_denials();
    /// };
    /// axum::serve(listener, app).with_graceful_shutdown(end).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_slow_denials(&self) {
        self.config.load().slow_end.close();
    }
}

live_layer!(RateLimitLayer);
common_setters!(RateLimitLayer);
request_setters!(RateLimitLayer);

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.config))
    }
}
