//! Rules and state in Redis, for all processes. A change of the file is pushed, and is in force in all of them.

use std::{env, error::Error, time::Duration};

use tollgate_redis::{Keys, Partition, RedisStore, Secret};
use tollgate_rules::{
    Author, Bindings, FileSource, LiveRules, RuleText, Source,
    redis::{PushErrorKind, RedisRules},
};

/// Two services on one Redis do not meet if their namespaces differ.
const NAMESPACE: &str = "shop";

/// The rules in Redis, those in force here, and the store with their state. It fails with a wrong address, or with a wrong file and no rules in
/// Redis.
pub(crate) async fn rules_and_store(
    address: &str,
    file: &str,
) -> Result<(RedisRules, LiveRules, RedisStore), Box<dyn Error>> {
    let secret = Secret::from_env("TOLLGATE_SECRET")?;
    let redis = RedisRules::new(address, NAMESPACE, &secret)?;
    let mut source = FileSource::new(file);
    let first = source.next().await.map_err(|wrong| wrong.to_string())?;
    push(&redis, first).await;
    tokio::spawn(push_changes(redis.clone(), source));
    let rules = LiveRules::follow(redis.source(), Bindings::new()).await?;
    let mut store = RedisStore::builder(address, NAMESPACE, Keys::hashed(secret))
        // Only a cluster asks for it: a request's rules have several keys, and are decided in one step.
        .partition(Partition::One)
        .measure_namespace(5_000);
    // For a Redis in another region. Without it a request waits as long as the library's default says.
    if let Ok(text) = env::var("REDIS_DEADLINE_MS") {
        let number = text.parse().map_err(|_| {
            format!("REDIS_DEADLINE_MS is {text:?} and no number; take 50, or leave it out")
        })?;
        store = store.deadline(Duration::from_millis(number));
    }
    let store = store.connect()?;
    // A service need not wait: until there is a connection each rule answers as it does when Redis is down.
    let _ = tokio::time::timeout(Duration::from_secs(5), store.connected()).await;
    Ok((redis, rules, store))
}

/// Pushes the file each time that it changes.
async fn push_changes(redis: RedisRules, mut source: FileSource) {
    loop {
        match source.next().await {
            Ok(text) => push(&redis, text).await,
            Err(wrong) => eprintln!("{wrong}"),
        }
    }
}

/// Pushes a document. Another process that sees the same file may be faster.
async fn push(redis: &RedisRules, text: RuleText) {
    let author = Author::new("the file of the example");
    loop {
        match redis.push(text.clone(), &Bindings::new(), &author).await {
            Err(wrong) if wrong.kind() == PushErrorKind::Conflict => {}
            Err(wrong) => return eprintln!("{wrong}"),
            Ok(_) => return,
        }
    }
}
