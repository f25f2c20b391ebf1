//! What the tests share.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use tollgate_core::{Decision, Key, KeyBuf, Limiter, MAX_PERIOD, Quota, Rule, Store};
use tollgate_ledger::{AccountUsage, Ledger, Period};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_test_servers::redis_server::RedisServer;

/// No window of it ends during a test.
pub(crate) const QUOTA: Quota = Quota::fixed_window(1_000_000, MAX_PERIOD);

pub(crate) fn account(key: &KeyBuf) -> String {
    let part = key.parts().next().map(|(_, part)| part.to_vec());
    String::from_utf8(part.unwrap_or_default()).expect("the keys of these tests are text")
}

pub(crate) fn limiter(store: impl Store, quota: Quota) -> Limiter {
    limiter_of(store, Rule::new("units", quota))
}

pub(crate) fn limiter_of(store: impl Store, rule: Rule) -> Limiter {
    Limiter::new(store, [rule.durable(account)]).expect("valid")
}

pub(crate) async fn redis(server: &RedisServer) -> RedisStore {
    let secret = Secret::from_bytes([7; 32]).expect("long enough");
    let store = RedisStore::builder(server.url(), "shop", Keys::hashed(secret))
        .deadline(Duration::from_secs(20))
        .connect()
        .expect("valid");
    store.connected().await;
    store
}

pub(crate) async fn take(limiter: &Limiter, account: &str, units: u64) -> Decision {
    let check = limiter.check("units", &Key::of(account)).expect("the rule");
    limiter.acquire(&[check.with_cost(units)]).await
}

pub(crate) async fn usage(ledger: &Ledger) -> Vec<AccountUsage> {
    let mut all = Vec::new();
    let each = |usage: &AccountUsage| {
        all.push(usage.clone());
        ControlFlow::Continue(())
    };
    ledger
        .usage(None, Period::ALL, each)
        .await
        .expect("it answers");
    all
}

/// By account, with corrections.
pub(crate) async fn sums(ledger: &Ledger) -> BTreeMap<String, i64> {
    let usage = usage(ledger).await.into_iter();
    usage
        .map(|it| (it.account, it.units + it.corrections))
        .collect()
}

/// A file that is there as long as its folder.
pub(crate) fn file() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}/ledger.db", folder.path().display());
    (folder, url)
}
