//! Streams at the pace of a rule.

use std::time::Duration;

use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt};
use tollgate_core::{Clock, Key, Limiter, MINUTE, MemoryStore, Quota, Rule, SECOND};

fn limiter(rule: Rule) -> Limiter {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    Limiter::new(store, [rule]).expect("a valid rule")
}

#[tokio::test(start_paused = true)]
async fn items_come_at_the_pace_of_the_rule_and_in_their_order() {
    let quota = Quota::per_second(5).burst(1);
    for rule in [
        Rule::new("provider", quota),
        Rule::new("provider", quota).wait(MINUTE),
        // Shorter than the time between two items.
        Rule::new("provider", quota).wait(SECOND / 100),
    ] {
        let limiter = limiter(rule);
        let key = Key::shared();
        let paced = limiter.pace("provider", &key, tokio_stream::iter(0..20_u32));
        let mut paced = paced.expect("there is a rule");
        let begin = Instant::now();
        for n in 0..20_u32 {
            assert_eq!(paced.size_hint(), (20 - n as usize, Some(20 - n as usize)));
            assert_eq!(paced.next().await, Some(n));
            let (at, due) = (begin.elapsed(), SECOND * n / 5);
            let late = Duration::from_millis(5);
            assert!(at >= due && at < due + late, "{n} at {at:?}");
        }
        assert_eq!(paced.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_gives_its_place_back() {
    let limiter = limiter(Rule::new("provider", Quota::gcra(1, SECOND)).wait(MINUTE));
    let key = Key::shared();
    let paced = limiter.pace("provider", &key, tokio_stream::iter(0..20_u32));
    let mut paced = paced.expect("there is a rule");
    assert_eq!(paced.next().await, Some(0));
    assert!(
        tokio::time::timeout(SECOND / 2, paced.next())
            .await
            .is_err()
    );
    drop(paced);
    let check = [limiter.check("provider", &key).expect("there is a rule")];
    let next = limiter.acquire(&check).ready().expect("at once");
    assert_eq!(next.delay(), SECOND / 2);
}

#[tokio::test(start_paused = true)]
async fn an_item_holds_its_slot_until_the_next_one_is_asked_for() {
    for rule in [
        Rule::new("provider", Quota::concurrent(1)),
        Rule::new("provider", Quota::concurrent(1)).wait(MINUTE),
    ] {
        let limiter = limiter(rule);
        let key = Key::shared();
        let paced = || limiter.pace("provider", &key, tokio_stream::iter(0..3_u32));
        let mut one = paced().expect("there is a rule");
        assert_eq!(one.next().await, Some(0));
        let mut other = paced().expect("there is a rule");
        let waits = tokio::time::timeout(SECOND, other.next()).await;
        assert!(waits.is_err(), "one item is worked on at a time");
        drop(other);
        // Its slot is free for its next item.
        assert_eq!(one.next().await, Some(1));
        drop(one);
        let mut other = paced().expect("there is a rule");
        assert_eq!(other.next().await, Some(0));
    }
}
