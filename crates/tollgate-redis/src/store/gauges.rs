//! What is measured now and then for gauges: what this process holds; and how many keys a namespace has and how much memory they take. One
//! process at a time looks at the keys of the servers, about 100 in each step, and stores the result in Redis, where the others read it.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::{connection::command::Script, store::context::StoreContext};

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

/// What measures.
pub(super) struct Ruler {
    shared: Arc<StoreContext>,
    instance: String,
    /// Between two steps.
    pause: Duration,
}

impl Ruler {
    /// With a bound on the keys that are looked at in a second.
    pub(super) fn new(shared: &Arc<StoreContext>, instance: &str, keys_per_second: u32) -> Self {
        Self {
            shared: Arc::clone(shared),
            instance: instance.to_owned(),
            pause: Duration::from_secs(1) * KEYS_OF_A_STEP / keys_per_second.max(1),
        }
    }

    /// Until the store ends it.
    pub(super) async fn run(self) {
        let mut pause = FIRST;
        loop {
            sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
            pause = pause_after(pause, self.measure().await);
        }
    }

    /// One measurement. Whether no other process is at it; `None`: it has failed.
    async fn measure(&self) -> Option<bool> {
        if !self.claim(CLAIM_LASTS, None).await? {
            return Some(false);
        }
        let mut claimed = Instant::now();
        let [mut keys, mut bytes, mut used_permille] = Found::default();
        for hash_slot in self.shared.backend.hash_slots() {
            let name = self.shared.keyspace.name_in(hash_slot);
            let (mut server, mut cursor) = (OnServer::default(), Some(0));
            while let Some(from) = cursor {
                sleep(self.pause).await;
                if claimed.elapsed() >= CLAIM_EVERY {
                    if !self.claim(CLAIM_LASTS, None).await? {
                        return Some(false);
                    }
                    claimed = Instant::now();
                }
                let namespace = &*self.shared.keyspace.namespace;
                let [from, count] = [from, KEYS_OF_A_STEP.into()].map(|it: u64| it.to_string());
                let args = [namespace, &from, &count, ASKED];
                let page = self.run_script(&STEP, &[&*name], &args).await?;
                cursor = Some(server.add(&page)?).filter(|next| *next > 0);
            }
            keys += server.keys;
            bytes = bytes.saturating_add(server.bytes());
            used_permille = used_permille.max(server.used_permille);
        }
        let found = [keys, bytes, used_permille];
        // No other process measures before this one does again. If this one is gone by then, another one does.
        self.claim(PAUSE * 2, Some(found)).await
    }

    /// Goes on measuring if no other process does, and tells what was found last.
    async fn claim(&self, lasts: Duration, found: Option<Found>) -> Option<bool> {
        let keys = ["measuring", "size"].map(|what| self.shared.keyspace.name_of(what));
        let lasts = lasts.as_millis().to_string();
        let found = found.map(to_text).unwrap_or_default();
        let kept = RESULT_LASTS.as_millis().to_string();
        let args = [&*self.instance, &lasts, &found, &kept];
        let texts = self.run_script(&CLAIM, &keys, &args).await?;
        let [is_mine, last] = &texts[..] else {
            return None;
        };
        if let Some([keys, bytes, used_permille]) = read(last) {
            let used = (used_permille > 0).then_some(used_permille as f64 / 1_000.0);
            self.shared.observer.namespace_size(keys, bytes, used);
        }
        Some(is_mine == "1")
    }

    /// The texts that a script gives.
    async fn run_script(
        &self,
        script: &'static Script,
        keys: &[impl AsRef<[u8]> + Sync],
        args: &[&str],
    ) -> Option<Vec<String>> {
        let answer = self.shared.run_in_background(script, keys, args).await?;
        let texts = answer.list()?.iter();
        texts.map(|text| text.text().map(str::to_owned)).collect()
    }
}

/// How long to wait after a measurement before which it was `pause`.
fn pause_after(pause: Duration, measured: Option<bool>) -> Duration {
    match measured {
        Some(true) => PAUSE,
        Some(false) => LOOK_EVERY,
        // Soon after a start there is no connection yet.
        None => (pause * 2).min(LOOK_EVERY),
    }
}

/// What was seen of a server so far: how large its keys are is a matter of each.
#[derive(Default)]
struct OnServer {
    keys: u64,
    asked: u64,
    asked_bytes: u64,
    used_permille: u64,
}

impl OnServer {
    /// Where to go on, 0 at the end. `None`: the page cannot be read.
    fn add(&mut self, page: &[String]) -> Option<u64> {
        let numbers: Option<Vec<u64>> = page.iter().map(|number| number.parse().ok()).collect();
        let [next, keys, asked, bytes, used, most] = numbers?[..] else {
            return None;
        };
        self.keys += keys;
        self.asked += asked;
        self.asked_bytes = self.asked_bytes.saturating_add(bytes);
        let permille = used.saturating_mul(1_000).checked_div(most);
        self.used_permille = self.used_permille.max(permille.unwrap_or(0));
        Some(next)
    }

    /// Those of all keys, as of the ones that were asked.
    fn bytes(&self) -> u64 {
        let product = u128::from(self.asked_bytes) * u128::from(self.keys);
        let all = product.checked_div(u128::from(self.asked)).unwrap_or(0);
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

// The task that brings gauges up to date.

/// How often gauges are brought up to date.
const EVERY: Duration = Duration::from_secs(1);

/// Brings gauges up to date until the store ends it.
pub(super) async fn run(shared: Arc<StoreContext>) {
    loop {
        sleep(EVERY).await;
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
        assert_eq!(server.add(&page("17 90 9 1800 300 1000")), Some(17));
        assert_eq!(server.add(&page("0 10 1 400 0 0")), Some(0));
        let seen = (server.keys, server.bytes(), server.used_permille);
        assert_eq!(seen, (100, 22_000, 300));
    }

    #[test]
    fn it_is_tried_again_sooner_at_first_and_seldom_while_another_process_measures() {
        let failed = |pause| pause_after(pause, None);
        let mut pauses = vec![FIRST];
        for _ in 0..6 {
            pauses.push(failed(pauses[pauses.len() - 1]));
        }
        let millis: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        // Also where it went well before.
        assert_eq!(failed(PAUSE), LOOK_EVERY);
        assert_eq!(pause_after(FIRST, Some(true)), PAUSE);
        assert_eq!(pause_after(FIRST, Some(false)), LOOK_EVERY);
    }

    #[test]
    fn what_was_found_is_read_by_others_as_it_was_written() {
        let found = [7, 1_400, 612];
        assert_eq!(read(&to_text(found)), Some(found));
        assert_eq!(read(""), None);
        assert_eq!(read("1 2"), None);
    }
}
