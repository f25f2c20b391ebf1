//! An id counts at most once, in two processes, whatever becomes of replies, and of a Redis that begins anew.

use tokio::task::JoinSet;
use tollgate_core::{Decision, HOUR, Key, Limiter, MAX_PERIOD, OnStoreError, Quota, Rule};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{
    eventually::eventually,
    numbers::Numbers,
    proxy::{Fault, Proxy},
    redis_client::RedisClient,
    redis_server::RedisServer,
};
use tollgate_test_services::instance::PATIENCE;

use crate::fault::Seed;

const LIMIT: u64 = 1_000_000;
const IDS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Calm,
    RepliesLost,
    Killed,
    Emptied,
}

struct Fleet {
    server: RedisServer,
    proxy: Proxy,
    limiters: [Limiter; 2],
    numbers: Numbers,
}

async fn limiter(proxy: &Proxy) -> Limiter {
    let store = RedisStore::builder(proxy.url(), "ids", Keys::plain()).deadline(PATIENCE);
    let store = store.connect().expect("a valid address");
    store.connected().await;
    let rule = Rule::new("orders", Quota::fixed_window(LIMIT, MAX_PERIOD)).idempotent(HOUR);
    let rule = rule.on_store_error(OnStoreError::Deny);
    Limiter::new(store, [rule]).expect("a valid rule")
}

async fn request(limiter: Limiter, id: u64) -> (u64, Decision) {
    let check = limiter
        .check("orders", &Key::of("client"))
        .expect("the rule is there");
    let check = limiter
        .with_id(check, &Key::of(id))
        .expect("it is idempotent");
    (id, limiter.acquire(&[check]).await)
}

impl Fleet {
    async fn used(&self) -> u64 {
        let mut used = 0;
        for limiter in &self.limiters {
            used = eventually("the store is asked again", || async {
                let check = limiter
                    .check("orders", &Key::of("client"))
                    .expect("it is there");
                let looked = limiter.peek(&[check.with_cost(0)]).await;
                let verdict = looked.verdicts()[0];
                verdict.has_numbers().then(|| LIMIT - verdict.remaining())
            })
            .await;
        }
        used
    }

    /// Each id of a round comes one to four times, at both processes at the same time.
    async fn play(&mut self, round: Round, first: u64) {
        let before = self.used().await;
        match round {
            Round::Calm => {}
            Round::RepliesLost => {
                let bytes = self.numbers.below(400) as usize;
                self.proxy.set(Fault::ResetAfter(bytes));
            }
            Round::Killed => self.server.kill(),
            Round::Emptied => {
                RedisClient::connect(([127, 0, 0, 1], self.server.port()).into()).say("FLUSHALL");
            }
        }
        let mut tasks = JoinSet::new();
        for id in first..first + IDS {
            for _ in 0..1 + self.numbers.below(4) {
                let limiter = &self.limiters[self.numbers.below(2) as usize];
                tasks.spawn(request(limiter.clone(), id));
            }
        }
        if round == Round::Killed {
            self.server.restart().await;
        }
        let answers = tasks.join_all().await;
        self.proxy.set(Fault::None);
        let used = self.used().await;
        let is_lost = matches!(round, Round::Killed | Round::Emptied);
        let counted = if is_lost { used } else { used - before };
        let ids = first..first + IDS;
        let passed = |id: &u64| answers.iter().any(|(of, it)| of == id && it.is_allowed());
        let passed = ids.filter(passed).count() as u64;
        assert!(
            (passed..=IDS).contains(&counted),
            "{counted} of {passed}, {round:?}"
        );
        if round == Round::Calm {
            assert_eq!(counted, passed);
            self.refund(answers, used).await;
        } else if is_lost && first > 0 {
            let (_, decision) = request(self.limiters[0].clone(), 0).await;
            assert!(!decision.is_repeat(), "its id is lost");
        }
    }

    /// All get everything back: those stay counted that were repeated.
    async fn refund(&self, answers: Vec<(u64, Decision)>, used: u64) {
        let repeated = |id: u64| answers.iter().any(|(of, it)| *of == id && it.is_repeat());
        let back = answers
            .iter()
            .filter(|(id, it)| it.is_allowed() && !repeated(*id));
        let left = used - back.count() as u64;
        for (id, decision) in &answers {
            let limiter = &self.limiters[0];
            let check = limiter
                .check("orders", &Key::of("client"))
                .expect("it is there");
            let check = limiter
                .with_id(check, &Key::of(*id))
                .expect("it is idempotent");
            limiter.ticket(&[check], decision).cancel();
        }
        eventually("all refunds are done", || async {
            (self.used().await == left).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_two_processes_an_id_counts_once_while_replies_and_states_are_lost() {
    let seed = Seed::new();
    let mut numbers = seed.numbers();
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::start(server.port(), numbers.next()).await;
    let limiters = [limiter(&proxy).await, limiter(&proxy).await];
    let mut fleet = Fleet {
        server,
        proxy,
        limiters,
        numbers,
    };
    let rounds = [
        Round::Calm,
        Round::RepliesLost,
        Round::Killed,
        Round::Emptied,
    ];
    for number in 0..12 {
        let round = match number {
            0..4 => rounds[number as usize],
            _ => fleet.numbers.of(&rounds),
        };
        fleet.play(round, number * IDS).await;
    }
}
