//! Slots while Redis is away: each process has its share, next to what runs already.

use std::{num::NonZeroU32, time::Duration};

use tokio::time::sleep;
use tollgate_core::{Check, Decision, Key, Limiter, Quota, Reason, Rule, SECOND, Source, Ticket};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{eventually::eventually, redis_server::RedisServer};

const LIMIT: u64 = 6;
/// Of two processes.
const SHARE: usize = 3;

struct Process {
    limiter: Limiter,
    check: Check,
}

impl Process {
    async fn start(&self) -> (Decision, Option<Ticket>) {
        let checks = [self.check];
        let decision = self.limiter.acquire(&checks).await;
        let ticket = self.limiter.ticket(&checks, &decision);
        let ticket = decision.is_allowed().then_some(ticket);
        (decision, ticket)
    }

    /// As many as start, and one that does not.
    async fn start_all(&self) -> (Vec<Ticket>, Decision) {
        let mut running = Vec::new();
        loop {
            match self.start().await {
                (_, Some(ticket)) => running.push(ticket),
                (denied, None) => return (running, denied),
            }
            assert!(running.len() <= LIMIT as usize, "more than all slots");
        }
    }

    /// Waits until Redis says that so many slots are free.
    async fn freed(&self, slots: u64) {
        eventually("slots are free", || async {
            let looked = self.limiter.peek(&[self.check.with_cost(0)]).await;
            let verdict = looked.verdicts()[0];
            let is_there = verdict.source() == Source::Store && verdict.remaining() == slots;
            is_there.then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_a_process_has_its_share_of_the_slots_and_all_of_them_go_back() {
    let mut server = RedisServer::start(&[]).await;
    let store = RedisStore::builder(server.url(), "away", Keys::plain())
        .deadline(5 * SECOND)
        .slot_term(Duration::from_secs(1))
        .connect()
        .expect("a valid address");
    store.connected().await;
    let rules = [Rule::new("exports", Quota::concurrent(LIMIT))];
    let two = NonZeroU32::new(2).expect("it is not 0");
    let limiter = Limiter::with_instances(store, rules, two);
    let limiter = limiter.expect("a valid rule");
    let check = limiter.check("exports", &Key::shared()).expect("the rule");
    let process = Process { limiter, check };
    let mut through_redis = Vec::new();
    for _ in 0..4 {
        through_redis.extend(process.start().await.1);
    }
    assert_eq!(through_redis.len(), 4);

    server.kill();
    // What runs is not part of the share.
    let (mut local, denied) = process.start_all().await;
    assert_eq!(denied.verdicts()[0].source(), Source::Fallback);
    assert_eq!((local.len(), denied.reason()), (SHARE, Some(Reason::Slots)));
    // One that ends gives its slot to the next, and one that Redis has granted does not.
    drop(through_redis.pop());
    assert!(process.start().await.1.is_none());
    drop(local.pop());
    local.extend(process.start().await.1);
    assert!(process.start().await.1.is_none());
    local.clear();
    let (local, denied) = process.start_all().await;
    let source = denied.verdicts()[0].source();
    assert_eq!((source, local.len()), (Source::Fallback, SHARE));

    // Redis has lost its states, and learns what it granted that still runs; of the share it learns nothing.
    server.restart().await;
    process.freed(LIMIT - 3).await;
    drop(local);
    sleep(Duration::from_secs(1)).await;
    process.freed(LIMIT - 3).await;
    let (others, denied) = process.start_all().await;
    assert_eq!(others.len() as u64, LIMIT - 3, "{denied:?}");
    drop((others, through_redis));
    process.freed(LIMIT).await;
}
