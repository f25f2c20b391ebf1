//! The limits of the gateway.

use tollgate::{
    MINUTE, Quota, RateLimitLayer, Rule, RuleError, SECOND, Store,
    header::HeaderStyle,
    key::{KeyBuf, extension_with, header},
    quota::CalendarUnit,
    rejection::Protocol,
};

use crate::proxy::Tenant;

/// The longest answer of the model, in tokens: what clients may ask for.
pub(crate) const LONGEST_ANSWER: u64 = 200;

/// A layer for each route.
pub(crate) struct Limits {
    pub(crate) items: RateLimitLayer,
    pub(crate) model: RateLimitLayer,
    pub(crate) statement: RateLimitLayer,
}

impl Limits {
    pub(crate) fn new(store: &(impl Store + Clone), tokens: u64) -> Result<Self, RuleError> {
        // Each API key, on all routes together: a name is one budget on one store.
        let by_key =
            || Rule::new("key", Quota::gcra(20, SECOND).burst(100)).by(header("x-api-key"));
        let by_tenant = || extension_with(|tenant: &Tenant| Some(tenant.name()));
        let layer = |rules| -> Result<_, RuleError> {
            Ok(RateLimitLayer::new(store.clone(), rules)?
                .headers(HeaderStyle::DRAFT_11 | HeaderStyle::X_RATELIMIT_EPOCH)?
                .protocol(Protocol::Http))
        };
        Ok(Self {
            items: layer(vec![
                by_key(),
                Rule::new("items", Quota::sliding_window(30, MINUTE)).by(by_tenant()),
            ])?,
            model: layer(vec![
                by_key(),
                Rule::new("streams-at-once", Quota::concurrent(3)).by(by_tenant()),
                // What an answer has cost is known at its end: three at once may overrun, and the next request waits for it.
                Rule::new("tokens", Quota::calendar(tokens, CalendarUnit::Month))
                    .debt(3 * 4 * LONGEST_ANSWER)
                    // Where the budget is used up, what the tenant has bought is taken.
                    .credits()
                    .durable(tenant_of)
                    .unit("tokens")
                    .by_handler(),
            ])?,
            statement: layer(vec![
                by_key(),
                Rule::new("statements", Quota::sliding_window(10, MINUTE)).by(by_tenant()),
            ])?,
        })
    }
}

/// The account of a key: its only part is the tenant's name.
fn tenant_of(key: &KeyBuf) -> String {
    let name = key.parts().last().map_or(&[][..], |(_, name)| name);
    String::from_utf8_lossy(name).into_owned()
}
