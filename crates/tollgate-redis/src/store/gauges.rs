//! What is measured now and then for gauges: what this process holds; and how many keys a namespace has and how much memory they take. One
//! process at a time looks at the keys of the servers, about 100 in each step, and stores the result in Redis, where the others read it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::{
    connection::{command::Script, resp::Value},
    store::context::StoreContext,
};

static CLAIM: Script = Script::new(include_str!("../../lua/measure_claim.lua"));

static STEP: Script = Script::new(include_str!("../../lua/measure_step.lua"));

/// How many keys a step looks at, about. Longer ones would keep requests waiting.
const KEYS_OF_A_STEP: u32 = 100;

/// One in how many keys of the namespace is asked for its memory.
const ASKED: &str = "10";

/// How long a process that ends while it measures keeps others from it.
const CLAIM_LASTS: Duration = Duration::from_secs(10);

/// How often it says that it is still at it.
const CLAIM_EVERY: Duration = Duration::from_secs(3);

/// Between two measurements.
const PAUSE: Duration = Duration::from_secs(60);

/// How often a process that does not measure looks for news, and tries again after a failure.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Until there was an answer.
const FIRST: Duration = Duration::from_millis(250);

/// How long it is known what was found, if nothing new is.
const RESULT_LASTS: Duration = Duration::from_secs(24 * 60 * 60);

/// What was found: the keys and the bytes of a namespace; and in thousandths the share of the memory in use, of the server that is nearest
/// to its bound; 0: there is no bound.
type Found = [u64; 3];

fn to_text(found: Found) -> String {
    found.map(|number| number.to_string()).join(" ")
}

fn read(text: &str) -> Option<Found> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|it| it.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Why a measurement has come to nothing.
enum Stop {
    /// The store is gone.
    Gone,
    /// Another process measures.
    Claimed,
    Failed,
}

/// What measures.
pub(super) struct Ruler {
    shared: Weak<StoreContext>,
    instance: String,
    /// Between two steps.
    pause: Duration,
}

impl Ruler {
    /// With a bound on the keys that are looked at in a second.
    pub(super) fn new(shared: &Arc<StoreContext>, instance: &str, keys_per_second: u32) -> Self {
        Self {
            // It must not keep the store alive that ends it.
            shared: Arc::downgrade(shared),
            instance: instance.to_owned(),
            pause: Duration::from_secs(1) * KEYS_OF_A_STEP / keys_per_second.max(1),
        }
    }

    pub(super) async fn run(self) {
        let mut pause = FIRST;
        loop {
            sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
            match pause_after(pause, &self.measure().await) {
                Some(next) => pause = next,
                None => return,
            }
        }
    }

    /// One measurement, if no other process is at it.
    async fn measure(&self) -> Result<(), Stop> {
        self.claim(CLAIM_LASTS, None).await?;
        let mut claimed = Instant::now();
        let [mut keys, mut bytes, mut used_permille] = Found::default();
        let hash_slots = self.shared()?.backend.hash_slots();
        for hash_slot in hash_slots {
            let name = self.shared()?.keyspace.name_in(hash_slot);
            let mut server = OnServer {
                cursor: Some("0".to_owned()),
                ..OnServer::default()
            };
            while let Some(cursor) = server.cursor.take() {
                sleep(self.pause).await;
                if claimed.elapsed() >= CLAIM_EVERY {
                    self.claim(CLAIM_LASTS, None).await?;
                    claimed = Instant::now();
                }
                let page = self.step(&name, &cursor).await?;
                server.add(&page).ok_or(Stop::Failed)?;
            }
            keys += server.keys;
            bytes = bytes.saturating_add(server.bytes());
            used_permille = used_permille.max(server.used_permille);
        }
        // No other process measures before this one does again. If this one is gone by then, another one does.
        self.claim(PAUSE * 2, Some([keys, bytes, used_permille]))
            .await
    }

    fn shared(&self) -> Result<Arc<StoreContext>, Stop> {
        self.shared.upgrade().ok_or(Stop::Gone)
    }

    /// Goes on measuring if no other process does, and tells what was found last.
    async fn claim(&self, lasts: Duration, found: Option<Found>) -> Result<(), Stop> {
        let shared = self.shared()?;
        let keys = ["measuring", "size"].map(|what| shared.keyspace.name_of(what));
        let lasts = lasts.as_millis().to_string();
        let found = found.map(to_text).unwrap_or_default();
        let kept = RESULT_LASTS.as_millis().to_string();
        let args = [&*self.instance, &lasts, &found, &kept];
        let texts = texts(shared.run_in_background(&CLAIM, &keys, &args).await)?;
        let [is_mine, last] = &texts[..] else {
            return Err(Stop::Failed);
        };
        if let Some([keys, bytes, used_permille]) = read(last) {
            let used = (used_permille > 0).then_some(used_permille as f64 / 1_000.0);
            shared.observer.namespace_size(keys, bytes, used);
        }
        match &**is_mine {
            "1" => Ok(()),
            _ => Err(Stop::Claimed),
        }
    }

    async fn step(&self, name: &str, cursor: &str) -> Result<Vec<String>, Stop> {
        let shared = self.shared()?;
        let namespace = &*shared.keyspace.namespace;
        let count = KEYS_OF_A_STEP.to_string();
        let args = [namespace, cursor, &count, ASKED];
        texts(shared.run_in_background(&STEP, &[name], &args).await)
    }
}

/// How long to wait after a measurement before which it was `pause`; `None`: the store is gone.
fn pause_after(pause: Duration, measured: &Result<(), Stop>) -> Option<Duration> {
    match measured {
        Ok(()) => Some(PAUSE),
        Err(Stop::Gone) => None,
        // Soon after a start there is no connection yet.
        Err(Stop::Failed) => Some((pause * 2).min(LOOK_EVERY)),
        Err(Stop::Claimed) => Some(LOOK_EVERY),
    }
}

/// The answer of a script that gives texts.
fn texts(answer: Option<Value>) -> Result<Vec<String>, Stop> {
    let Some(Value::List(values)) = answer else {
        return Err(Stop::Failed);
    };
    let texts = values.iter().map(|value| value.text().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or(Stop::Failed)
}

/// What was seen of a server so far.
#[derive(Default)]
struct OnServer {
    /// Where to go on; `None` at the end.
    cursor: Option<String>,
    keys: u64,
    asked: u64,
    asked_bytes: u64,
    used_permille: u64,
}

impl OnServer {
    /// `None`: the page cannot be read.
    fn add(&mut self, page: &[String]) -> Option<()> {
        let [cursor, numbers @ ..] = page else {
            return None;
        };
        let numbers: Option<Vec<u64>> = numbers.iter().map(|number| number.parse().ok()).collect();
        let (keys, asked, bytes) = match &*numbers? {
            [keys, asked, bytes] => (*keys, *asked, *bytes),
            [keys, asked, bytes, used, most] => {
                let permille = used.saturating_mul(1_000).checked_div(*most);
                self.used_permille = permille.unwrap_or(0);
                (*keys, *asked, *bytes)
            }
            _ => return None,
        };
        self.keys += keys;
        self.asked += asked;
        self.asked_bytes = self.asked_bytes.saturating_add(bytes);
        self.cursor = (cursor != "0").then(|| cursor.clone());
        Some(())
    }

    /// Those of all keys, as of the ones that were asked.
    fn bytes(&self) -> u64 {
        let all = u128::from(self.asked_bytes) * u128::from(self.keys);
        let all = all.checked_div(u128::from(self.asked)).unwrap_or(0);
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

// The task that brings gauges up to date.

/// How often gauges are brought up to date.
const EVERY: Duration = Duration::from_secs(1);

/// Brings gauges up to date until the store is gone.
pub(super) async fn run(shared: Weak<StoreContext>) {
    loop {
        sleep(EVERY).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let of_store = Arc::clone(&shared);
        // It looks at all that is kept of keys: of 100 000 for some milliseconds.
        let usage = spawn_blocking(move || of_store.engine.usage(of_store.process_clock.now()));
        let Ok(usage) = usage.await else {
            return;
        };
        let counts = shared.engine.counts();
        shared.observer.engine(Some(&usage), counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &str) -> Vec<String> {
        words.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_bytes_of_all_keys_are_those_of_the_asked_ones_in_proportion() {
        let mut server = OnServer::default();
        assert_eq!(server.add(&page("17 90 9 1800 300 1000")), Some(()));
        assert_eq!(server.cursor.as_deref(), Some("17"));
        assert_eq!(server.add(&page("0 10 1 400")), Some(()));
        let seen = (server.keys, server.bytes(), server.used_permille);
        assert_eq!((seen, server.cursor), ((100, 22_000, 300), None));
    }

    #[test]
    fn it_is_tried_again_sooner_at_first_and_seldom_while_another_process_measures() {
        let failed = |pause| pause_after(pause, &Err(Stop::Failed)).expect("the store is there");
        let mut pauses = vec![FIRST];
        for _ in 0..6 {
            pauses.push(failed(pauses[pauses.len() - 1]));
        }
        let millis: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        // Also where it went well before.
        assert_eq!(failed(PAUSE), LOOK_EVERY);
        let next = |measured| pause_after(FIRST, &measured);
        assert_eq!(next(Ok(())), Some(PAUSE));
        assert_eq!(next(Err(Stop::Claimed)), Some(LOOK_EVERY));
        assert_eq!(next(Err(Stop::Gone)), None);
    }

    #[test]
    fn what_was_found_is_read_by_others_as_it_was_written() {
        let found = [7, 1_400, 612];
        assert_eq!(read(&to_text(found)), Some(found));
        assert_eq!(read(""), None);
        assert_eq!(read("1 2"), None);
    }
}
